"""Says that the learner refuses this agent: when it begins, and then less and less often.

Heartbeats, updates and rounds are each asked again after a refusal, for as long as the agent runs, and of a cluster
that was turned out all of them are refused in the same words. Said each time, that would bury everything else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from cluster_agent.errors import LearnerRefused

_log = structlog.get_logger()

_FIRST_SILENCE_SECONDS = 60.0
_LONGEST_SILENCE_SECONDS = 3600.0
_MOST_REASONS = 16
"""Words that change with every refusal must not fill the memory; the oldest are forgotten."""


@dataclass(slots=True)
class _Refusal:
    due_seconds: float
    silence_seconds: float = _FIRST_SILENCE_SECONDS
    times: int = 1
    callers: set[str] = field(default_factory=set)


class Refusals:
    """One agent's; safe to use from several threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Refusal] = {}
        self._lock = threading.Lock()

    def refused(self, caller: str, error: LearnerRefused) -> None:
        """A caller (heartbeat, update or round) was refused; said if it is new, or due again."""
        said = str(error)
        reason = said.partition(": ")[2] or said  # the same for every call, whose name stands before it
        with self._lock:
            now = self._clock()
            refusal = self._known.get(reason)
            if refusal is None:
                if len(self._known) >= _MOST_REASONS:
                    del self._known[next(iter(self._known))]
                self._known[reason] = _Refusal(now + _FIRST_SILENCE_SECONDS, callers={caller})
                _log.error("learner-refused", error=said, scheduling="goes on")
                return
            refusal.callers.add(caller)
            refusal.times += 1
            if now >= refusal.due_seconds:
                refusal.silence_seconds = min(2.0 * refusal.silence_seconds, _LONGEST_SILENCE_SECONDS)
                refusal.due_seconds = now + refusal.silence_seconds
                _log.error("learner-refuses-still", error=said, times=refusal.times, scheduling="goes on")

    def answered(self, caller: str) -> None:
        """A caller was not refused; the next refusal of what nobody is refused any more is new."""
        with self._lock:
            for reason, refusal in list(self._known.items()):
                refusal.callers.discard(caller)
                if not refusal.callers:
                    del self._known[reason]
