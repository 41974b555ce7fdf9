"""Waits between tries that fail: longer each time up to a bound, and never the same for all who wait.

Members of a job or of a fleet that lose their server at one moment would otherwise all knock again at one moment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_FORGOTTEN_SECONDS = 600.0
"""So long after a failure the next one is followed at once again: as Kubernetes forgets a container's crashes."""
_MOST_DOUBLINGS = 64
"""Beyond it a power of two is a number without use; the bound holds long before."""


class Backoff:
    """The waits of one caller.

    Args:
        first_seconds: the bound of the first wait, which doubles with every failure.
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


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of what is started again: a script that fails in vain is given up, one that gets on is slowed down.

    Attributes:
        in_a_row: without progress in between, the newest included.
        recent: each within ten minutes of the one before.
        progress: how far it was at the newest; any number that grows.
    """

    in_a_row: int = 0
    total: int = 0
    recent: int = 0
    progress: float = -1.0
    unix_seconds: float = 0.0

    def and_another(self, progress: float, unix_seconds: float) -> Failures:
        """One more: it was so far, then."""
        in_a_row = 1 if progress > self.progress else self.in_a_row + 1
        soon = self.total > 0 and unix_seconds - self.unix_seconds < _FORGOTTEN_SECONDS
        return Failures(in_a_row, self.total + 1, self.recent + 1 if soon else 1, progress, unix_seconds)

    def pause_seconds(self, first_seconds: float, longest_seconds: float) -> float:
        """Before the next start: none after one failure, then `first_seconds`, doubled each time up to a bound."""
        if self.recent < 2:  # one is no series
            return 0.0
        return min(longest_seconds, first_seconds * 2.0 ** min(self.recent - 2, _MOST_DOUBLINGS))
