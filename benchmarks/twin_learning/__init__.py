"""What a fleet learns from replays of its clusters' own past."""
