"""The pace of a simulated cluster's clock; a live cluster's clock needs no help.

`free` runs on, `scaled` keeps a ratio to the wall clock, and `lockstep` waits for the trainer, so that a run learns as
much per decision on a slow machine as on a fast one. Each of them may wait for the twin of a rollout, too.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster_agent.backend_settings import FreePace, LockstepPace, ScaledPace
from cluster_agent.backends.base import Backlog, Wait

_POLL_SECONDS = 0.002
"""How often lockstep looks at the backlog: well below the ~10 ms that an update takes, and no load."""
_TWIN_POLL_SECONDS = 0.02
"""How often the twin is looked at: its answers take a second and more."""
MOST_UNANSWERED = 1
"""Questions to the twin beyond which the clock stands: while it works on one, the next comes up."""


Hold = Callable[[float], bool]
"""Returns when an interval of so many simulated seconds may be over; True as soon as the agent is to stop."""


class LockstepPacer:
    """Waits while the trainer is behind, unless it gets nothing done for longer than patience lasts.

    Once patience is over the clock runs free until the trainer works something off again: an outage is waited for once.
    """

    def __init__(self, settings: LockstepPace, backlog: Backlog, wait: Wait, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._backlog = backlog
        self._wait = wait
        self._clock = clock
        self._given_up_at: int | None = None

    def hold(self, simulated_seconds: float) -> bool:  # noqa: ARG002  (the trainer's time counts, not the cluster's)
        """Wait until the trainer has caught up to within the bound."""
        done = self._backlog.worked_off
        since = self._clock()
        while self._backlog.waiting > self._settings.backlog_decisions:
            if self._wait(_POLL_SECONDS):
                return True
            if self._backlog.worked_off != done:
                done = self._backlog.worked_off
                since = self._clock()
                self._given_up_at = None
            elif self._given_up_at == done or self._clock() - since > self._settings.patience_seconds:
                self._given_up_at = done
                break
        return self._wait(0.0)


def behind_twin(hold: Hold, unanswered: Callable[[], int], wait: Wait) -> Hold:
    """A pace that waits for the twin as well, until it has few questions left; it gives up on what takes long."""

    def waiting(simulated_seconds: float) -> bool:
        while unanswered() > MOST_UNANSWERED:
            if wait(_TWIN_POLL_SECONDS):
                return True
        return hold(simulated_seconds)

    return waiting


def pace_of(
    settings: LockstepPace | ScaledPace | FreePace, backlog: Backlog | None, wait: Wait, clock: Callable[[], float]
) -> Hold:
    """The pace of a configuration; without a trainer (`backlog` None) lockstep has nothing to wait for."""
    if isinstance(settings, ScaledPace):
        speedup = settings.speedup
        return lambda simulated_seconds: wait(simulated_seconds / speedup)
    if isinstance(settings, LockstepPace) and backlog is not None:
        return LockstepPacer(settings, backlog, wait, clock).hold
    return lambda _: wait(0.0)
