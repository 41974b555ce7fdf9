"""How often something that must run is started again before it is given up."""

from __future__ import annotations

from collections import deque


class Restarts:
    """At most so many in a window, with growing pauses; times are any one clock's seconds."""

    def __init__(self, limit: int, window_seconds: float, backoff_seconds: float, longest_seconds: float) -> None:
        self._limit = limit
        self._window_seconds = window_seconds
        self._backoff_seconds = backoff_seconds
        self._longest_seconds = longest_seconds
        self._deaths: deque[float] = deque()

    def died(self, now_seconds: float) -> float | None:
        """It died: when to start it again; None if it has died too often."""
        while self._deaths and self._deaths[0] <= now_seconds - self._window_seconds:
            self._deaths.popleft()
        if len(self._deaths) >= self._limit:
            return None
        self._deaths.append(now_seconds)
        pause = self._backoff_seconds * 2.0 ** (len(self._deaths) - 1)
        return now_seconds + min(pause, self._longest_seconds)
