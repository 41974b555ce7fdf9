"""Workers whose part of a step does not come although others' parts are here: said to the coordinator after a while.

A worker that still computes is named too; only the coordinator, which hears from the worker itself whether it waits,
can tell the two apart.
"""

from __future__ import annotations

from elastic_runtime.server.pushes import Lacking

_OVERDUE_SECONDS = 5.0


class Overdue:
    """How long the same pushes have been outstanding.

    Args:
        overdue_seconds: after how long workers are named.
    """

    def __init__(self, overdue_seconds: float | None = None) -> None:
        self._overdue_seconds = _OVERDUE_SECONDS if overdue_seconds is None else overdue_seconds
        self._lacking: Lacking | None = None
        self._since_seconds = 0.0

    def look(self, lacking: Lacking | None, now_seconds: float) -> tuple[str, ...]:
        """What is lacking now (None: nothing); returns the workers that are overdue, in order."""
        if lacking != self._lacking:
            self._lacking, self._since_seconds = lacking, now_seconds
        if lacking is None or now_seconds - self._since_seconds < self._overdue_seconds:
            return ()
        return lacking.workers
