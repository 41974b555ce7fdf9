"""What recorded pasts teach: a fleet of its own within the demo, which learns from replays, judged on later jobs."""
