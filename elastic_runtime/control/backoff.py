"""How long to wait before the next try: longer each time, and never the same for all members at once."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double up to a limit, each shortened by up to a half at random.

    Args:
        seed: of the randomness; members use their incarnations, so that a restarted coordinator is not rushed.
        first_seconds: the first wait.
        longest_seconds: the limit.
    """

    def __init__(self, seed: int, first_seconds: float = 0.05, longest_seconds: float = 2.0) -> None:
        self._random = random.Random(seed)
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._next_seconds = first_seconds

    def next_seconds(self) -> float:
        """The wait before the next try."""
        wait_seconds = self._next_seconds * self._random.uniform(0.5, 1.0)
        self._next_seconds = min(self._next_seconds * 2, self._longest_seconds)
        return wait_seconds

    def reset(self) -> None:
        """A try succeeded."""
        self._next_seconds = self._first_seconds
