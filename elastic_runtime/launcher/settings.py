"""Settings of a launcher: how long it waits and how much it keeps; none of it changes what a job computes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from foundation.clocks import AwakeClock


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
    warm: bool = True
    """Whether tasks are forked from a process that has imported what they need, where that can be."""
    warm_start_seconds: float = 60.0
    """Until that process has imported everything; then tasks start without it."""
    fork_seconds: float = 20.0
    """Until it has forked a task; on a machine that is not overloaded it takes some hundredths."""
    warm_rest_seconds: float = 60.0
    """How long it is kept when no task may have to be started: of a suspended job it is the largest process."""
    log_bytes: int = 16 * 1024 * 1024
    """A task's log is begun anew at this size; the one before is kept."""
    shown_lines: int = 1000
    """Lines that wait for a slow terminal; more are left out of it (not of the log), so that nobody waits for it."""


_GAP_SECONDS = 5.0
"""Between two looks of a launcher more is a time in which it was stopped; on a busy machine it looks every second."""


def launcher_clock() -> AwakeClock:
    """A launcher's clock: it stands still while the launcher and its job are stopped."""
    return AwakeClock(_GAP_SECONDS)


class RestartLimit:
    """Restarts of something that must run: at most `limit` in a window, with growing pauses; by any one clock."""

    def __init__(self, limit: int, window_seconds: float, backoff_seconds: float, longest_seconds: float) -> None:
        self._limit = limit
        self._window_seconds = window_seconds
        self._backoff_seconds = backoff_seconds
        self._longest_seconds = longest_seconds
        self._deaths: deque[float] = deque()

    def on_death(self, now_seconds: float) -> float | None:
        """It died: when to start it again; None if it has died too often."""
        while self._deaths and self._deaths[0] <= now_seconds - self._window_seconds:
            self._deaths.popleft()
        if len(self._deaths) >= self._limit:
            return None
        self._deaths.append(now_seconds)
        pause = self._backoff_seconds * 2.0 ** (len(self._deaths) - 1)
        return now_seconds + min(pause, self._longest_seconds)
