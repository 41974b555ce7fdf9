"""Contest for a cluster's name: two agents that call themselves the same, each registering over the other.

A learner gives every registration of a name the next number. An agent that gets one further on than it asked for knows
that somebody else registered in between. Once, that is a restored learner, or an agent that was moved to another
machine; again within half an hour, it is a second agent. Then this one takes the name back less and less often, so
that both can be told apart in logs and neither floods the learner; its cluster is scheduled all the while.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from cluster_agent.errors import NameContested

_log = structlog.get_logger()

_REMEMBERED_SECONDS = 1800.0
"""Longer than two of the longest waits: the other agent's wait is when this one has the name for itself."""
_FIRST_WAIT_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 300.0


class NameContest:
    """What is known of another agent of this name; the caller's lock keeps threads apart.

    Args:
        cluster: the name.
        clock: monotonic seconds.
    """

    def __init__(self, cluster: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._incarnation: int | None = None
        self._asked = 0
        self._times = 0
        self._latest_seconds = 0.0
        self._not_before = 0.0

    def on_superseded(self) -> None:
        """The learner does not know this agent's incarnation any more: another one may have registered."""
        self._not_before = self._clock() + self._wait_seconds()

    def on_ask(self) -> None:
        """A registration is asked for, whether or not its answer arrives.

        Raises:
            NameContested: it is not time to take the name back yet.
        """
        left_seconds = self._not_before - self._clock()
        if left_seconds > 0:
            raise NameContested(
                f"another agent calls itself {self._cluster}; this one takes the name back in {left_seconds:.0f} s"
            )
        self._asked += 1

    def on_registered(self, incarnation: int) -> None:
        """Take a new incarnation's number; one that nobody here asked for is another agent's, and said so."""
        now, before = self._clock(), self._incarnation
        is_other = before is not None and incarnation > before + self._asked
        self._incarnation, self._asked = incarnation, 0
        if not is_other:
            return
        if now - self._latest_seconds > _REMEMBERED_SECONDS:
            self._times = 0
        self._times += 1
        self._latest_seconds = now
        wait_seconds = self._wait_seconds()
        if wait_seconds:
            # As often as the name is taken back, and so no more often than the waits allow.
            _log.error(
                "name-contested",
                error=f"another agent calls itself {self._cluster}",
                advice="give each cluster a name of its own (cluster: in its configuration), or stop the other agent",
                waits_seconds=wait_seconds,
                scheduling="goes on",
            )

    def _wait_seconds(self) -> float:
        """How long to leave the name alone when it is lost next."""
        if self._times < 2 or self._clock() - self._latest_seconds > _REMEMBERED_SECONDS:
            return 0.0
        return float(min(_FIRST_WAIT_SECONDS * 2.0 ** (self._times - 2), _LONGEST_WAIT_SECONDS))
