"""Usual number of jobs in a cluster: the mean over the last days, kept whether or not there is a rollout.

What a rollout's losses are a share of has to be known before it begins. The window is of the cluster's own time, in
parts of an hour; a clock that goes back (another simulated episode) only begins another part.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from cluster_agent.rollout.presence import DecisionInterval

PART_SECONDS = 3600.0
PARTS = 7 * 24
"""A week: nights, working days and the weekend."""
LEAST_JOBS = 0.1
"""Of a cluster that was empty all week; a share of nothing is nothing."""


class UsualJobs:
    """A bounded window of time-weighted means."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, float]] = deque(maxlen=PARTS)
        self._open = (0.0, 0.0)

    @property
    def closed(self) -> int:
        """How many parts are full; changes when there is something to be kept."""
        return len(self._parts)

    def add(self, interval: DecisionInterval) -> bool:
        """Take in an interval; whether a part of the window is full now, and worth keeping."""
        seconds, job_seconds = self._open
        self._open = (
            seconds + interval.end - interval.begin,
            job_seconds + interval.job_seconds(interval.begin, interval.end),
        )
        if self._open[0] < PART_SECONDS:
            return False
        self._parts.append(self._open)
        self._open = (0.0, 0.0)
        return True

    def mean(self, otherwise: float) -> float:
        """Jobs in the system on average, at least `LEAST_JOBS`; `otherwise` where nothing was seen yet."""
        parts = [*self._parts, self._open]
        seconds = sum(part[0] for part in parts)
        return max(sum(part[1] for part in parts) / seconds if seconds > 0.0 else otherwise, LEAST_JOBS)

    def to_json(self) -> list[list[float]]:
        """For a file."""
        return [list(part) for part in (*self._parts, self._open)]

    @classmethod
    def from_json(cls, content: Any) -> UsualJobs:
        """The inverse.

        Raises:
            TypeError, ValueError, IndexError: it is something else.
        """
        made = cls()
        parts = [(float(seconds), float(job_seconds)) for seconds, job_seconds in content]
        made._parts.extend(parts[:-1])
        made._open = parts[-1]
        return made
