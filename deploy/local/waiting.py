"""Deadlines that hold on a busy machine: time without progress counts, and not how long it takes in all."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

LONGEST_SECONDS = 3600.0
"""Of any wait: twenty times what a whole demonstration takes on two idle cores."""


class ProgressDeadline:
    """Deadline that any progress puts off, up to a last one.

    Args:
        still_seconds: without progress, until it has passed.
        longest_seconds: until it has passed whatever goes on.
    """

    def __init__(
        self,
        still_seconds: float,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._still_seconds, self._longest_seconds, self._clock = still_seconds, longest_seconds, clock
        self._began = self._latest = clock()
        self._progress: Hashable = None

    def passed(self, progress: Hashable) -> bool:
        """Whether it has passed; `progress` is another value as soon as something has got on."""
        now = self._clock()
        if progress != self._progress:
            self._progress, self._latest = progress, now
        return now - self._latest > self._still_seconds or now - self._began > self._longest_seconds

    @property
    def waited_seconds(self) -> float:
        """Since it was made."""
        return self._clock() - self._began


class LearningTime:
    """Time in which a fleet learns: so many updates or seconds; where little of a processor is left, as long as the
    first version takes, if updates come at all.

    Args:
        seconds: after which it is over, once there is a version of the fleet's own.
        updates: after which it is over.
        version_updates: that make a version.
        still_seconds: without an update, until it is over all the same.
    """

    def __init__(
        self,
        seconds: float,
        updates: int,
        version_updates: int,
        still_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._updates, self._first = seconds, updates, min(version_updates, updates)
        self._deadline = ProgressDeadline(still_seconds, clock=clock)

    def share(self, updates: int) -> float:
        """How much of it is over."""
        return max(self._deadline.waited_seconds / self._seconds, updates / self._updates)

    def over(self, updates: int) -> bool:
        """Whether it is over after so many updates."""
        stuck = self._deadline.passed(updates)
        late = self._deadline.waited_seconds >= self._seconds
        return updates >= self._updates or (late and (updates >= self._first or stuck))
