"""What the jobs of these tests have in common."""

NAME = "tiny"
TOKEN = "of-a-tiny-job-that-tests-run"  # noqa: S105  # of no job
NEVER_SECONDS = 1e6
SETTINGS = {
    "report-every-seconds": 0.1,
    # Nobody is taken for dead because the machine is busy: a test that wants it says so when it comes to it (`adjust`).
    "lost-seconds": NEVER_SECONDS,
    "silent-seconds": NEVER_SECONDS,
    "suspect-seconds": NEVER_SECONDS,
    "vote-seconds": NEVER_SECONDS,
    "replacement-seconds": NEVER_SECONDS,
    "control-delay-seconds": 0.02,
    "checkpoint-seconds": 0.2,
    "stage-fraction": 0.25,
    "stage-bytes": 1,
}
