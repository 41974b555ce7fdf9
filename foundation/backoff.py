"""Waits between tries that fail: longer each time up to a bound, and never the same for all who wait.

Members of a job or of a fleet that lose their server at one moment would otherwise all knock again at one moment.
"""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 64
"""Beyond it a power of two is a number without use; the bound holds long before."""


class Backoff:
    """The waits of one caller.

    Args:
        seed: of the randomness; callers differ in it.
        first_seconds: the bound of the first wait, which doubles with every failure.
        longest_seconds: the largest bound.
        least_share: how much of its bound a wait is at least; above 0, or failures would make a busy loop.

    Raises:
        ValueError: a bound is not positive, or the share is not in (0, 1].
    """

    def __init__(self, seed: int | str, first_seconds: float, longest_seconds: float, least_share: float = 0.1) -> None:
        if min(first_seconds, longest_seconds, least_share) <= 0 or least_share > 1:
            raise ValueError(f"waits from {first_seconds} to {longest_seconds} s, {least_share} of them at least")
        self._random = random.Random(seed)
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._least_share = least_share
        self._failures = 0

    def next_seconds(self) -> float:
        """Count one more failure; the wait before the next try."""
        bound_seconds = min(self._longest_seconds, self._first_seconds * 2.0**self._failures)
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        return self._random.uniform(self._least_share * bound_seconds, bound_seconds)

    def reset(self) -> None:
        """Forget the failures: a try succeeded."""
        self._failures = 0
