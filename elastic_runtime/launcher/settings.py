"""How long a launcher waits and how much it keeps; none of it changes what a job computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """Every value says its unit, its meaning and why that default."""

    coordinator_start_seconds: float = 60.0
    """Until a coordinator listens; its imports take about a second, a busy machine many."""
    coordinator_restarts: int = 5
    """How often a coordinator that died is started again in `coordinator_window_seconds`; more often is no accident."""
    coordinator_window_seconds: float = 600.0
    """Restarts older than this are forgotten."""
    restart_backoff_seconds: float = 0.5
    """Wait before a second start of the same task, or of the coordinator; doubled each time."""
    longest_backoff_seconds: float = 30.0
    """The doubling ends here."""
    leave_seconds: float = 60.0
    """How long a task that is told to leave may take; a worker ends its step first, a PS its transfers."""
    unlisted_seconds: float = 60.0
    """How long a task may run that the coordinator does not know; a restarted one hears of them within seconds."""
    grace_seconds: float = 10.0
    """From SIGTERM to SIGKILL."""
    suspend_seconds: float = 120.0
    """How long the checkpoint may take when the launcher is told to stop; then everything is killed."""
    tick_seconds: float = 0.25
    """The longest sleep between two looks at the processes; whatever happens ends it earlier."""
    log_bytes: int = 16 * 1024 * 1024
    """A task's log is begun anew at this size; the one before is kept."""
    shown_lines: int = 1000
    """Lines that wait for a slow terminal; more are left out of it (not of the log), so that nobody waits for it."""
