"""Log lines about a learner that does not answer: one when it is lost, and one when something else keeps it away.

A learner that ends and comes back with other settings (certificates, say, or another port) is missed for one reason
first and for another one afterwards, and only the last says what to mend. Retries come every few seconds, so a reason
is said once an hour at most, and none within ten seconds of another.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from policy_net.errors import LearnerUnreachable

_log = structlog.get_logger()

_PAUSE_SECONDS = 10.0
_SAME_AGAIN_SECONDS = 3600.0
_MOST_REASONS = 16
"""Words that change with every attempt must not fill the memory, nor the log: none beyond so many is said."""


class Outage:
    """What was said since the learner was lost; used by one thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._latest = ""
        self._said: dict[str, float] = {}
        self._due_seconds = 0.0

    def on_unanswered(self, error: LearnerUnreachable) -> None:
        """The learner did not answer; logged if it is new, or why is."""
        said = str(error)
        reason = said.partition(": ")[2] or said  # the same for every call, whose name stands before it
        now = self._clock()
        if reason == self._latest or (self._said and now < self._due_seconds):
            return
        again_seconds = self._said.get(reason)
        is_new = again_seconds is None and len(self._said) < _MOST_REASONS
        if not is_new and (again_seconds is None or now < again_seconds):
            return
        _log.warning("learner-lost", error=said)
        self._latest, self._said[reason] = reason, now + _SAME_AGAIN_SECONDS
        self._due_seconds = now + _PAUSE_SECONDS

    def on_answered(self) -> None:
        """The learner answered; logged if it had been lost."""
        if self._said:
            _log.info("learner-returned")
        self._latest = ""
        self._said.clear()
