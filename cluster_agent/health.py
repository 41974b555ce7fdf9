"""Health of an agent: whether its loop still turns, and whether it could decide; asked at /healthz and /readyz."""

from __future__ import annotations

import math
from collections.abc import Callable

GAP_SECONDS = 60.0
"""Between two looks more is a time in which this process was stopped, or nobody asked: a loop that woke is alive."""


class Health:
    """Liveness of the decision loop, which each wait notes; read by any thread.

    Each wait ends by itself: only what lies between two of them can hang, for longer than `longest_seconds`.

    Args:
        clock: seconds in which this process ran; read when a probe asks.
    """

    def __init__(self, longest_seconds: float, clock: Callable[[], float], not_ready: Callable[[], str]) -> None:
        self._longest_seconds, self._clock, self._not_ready = longest_seconds, clock, not_ready
        self._turned_at = math.inf
        """Whoever has not begun is not late, nor is one that waits."""

    def turned(self) -> None:
        """Note that the loop has turned."""
        self._turned_at = self._clock()

    def reported_by(self, wait: Callable[[float], bool]) -> Callable[[float], bool]:
        """The same wait, which is noted."""

        def noted(seconds: float) -> bool:
            self._turned_at = math.inf
            stops = wait(seconds)
            self.turned()
            return stops

        return noted

    @property
    def not_alive(self) -> str:
        """Why the process should be started again, in a line; empty where it need not be."""
        silent_seconds = self._clock() - self._turned_at
        if silent_seconds <= self._longest_seconds:
            return ""
        return f"the decision loop has not turned for {silent_seconds:.0f} s"

    @property
    def not_ready(self) -> str:
        """Why no decision can be taken, in a line; empty where one can."""
        return self.not_alive or self._not_ready()
