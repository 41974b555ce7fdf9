"""How old the values were that the newest updates were computed with, in updates of others."""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 1000
"""The newest; some seconds of a busy job."""


class Staleness:
    """The staleness of the newest updates.

    Source: Ho et al. 2013 (stale synchronous parallel); the age is counted in versions of the updated blocks.
    """

    def __init__(self) -> None:
        self._ages: deque[int] = deque(maxlen=_KEPT)

    def add(self, age: int) -> None:
        """An update was applied to blocks that had changed so often since its worker took them."""
        self._ages.append(max(age, 0))

    @property
    def median(self) -> int:
        """Over the newest; 0 without any."""
        return int(median(self._ages)) if self._ages else 0
