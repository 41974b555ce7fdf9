"""Workers whose part of a step does not come although other workers are heard: said to the coordinator after a while.

A worker that still computes is named too; only the coordinator, which hears from the worker itself whether it waits,
can tell the two apart. A server that hears nobody names nobody: it may be the one that is cut off.
"""

from __future__ import annotations

from elastic_runtime.server.protocol.pushes import Lacking

_OVERDUE_SECONDS = 5.0


class Overdue:
    """Who was heard when, and how long the same pushes have been outstanding.

    Args:
        overdue_seconds: after how long workers are named. Others count as heard for twice as long: who waits asks
            every 5 s.
    """

    def __init__(self, overdue_seconds: float | None = None) -> None:
        self._overdue_seconds = _OVERDUE_SECONDS if overdue_seconds is None else overdue_seconds
        self._heard_seconds: dict[str, float] = {}
        self._lacking: Lacking | None = None
        self._since_seconds = 0.0

    def heard(self, peer: str, now_seconds: float) -> None:
        """A message of this worker or server came."""
        self._heard_seconds[peer] = now_seconds

    def look(self, lacking: Lacking | None, now_seconds: float) -> tuple[str, ...]:
        """What is lacking now (None: nothing); returns the workers that are overdue, in order."""
        if lacking != self._lacking:
            self._lacking, self._since_seconds = lacking, now_seconds
        if lacking is None or now_seconds - self._since_seconds < self._overdue_seconds:
            return ()
        recently = now_seconds - 2 * self._overdue_seconds
        if all(self._heard_seconds.get(worker, recently) <= recently for worker in lacking.others):
            return ()
        late = now_seconds - self._overdue_seconds
        return tuple(worker for worker in lacking.workers if self._heard_seconds.get(worker, late) <= late)
