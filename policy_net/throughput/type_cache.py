"""What follows from a job type's speeds, worked out once for every state of the speed model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, Job, SpeedModel

Made = TypeVar("Made")
Grid = NDArray[np.float64]


class TypeCache(Generic[Made]):
    """One thing per (type, caps, smallest split), made anew when the speed model hands out another grid for the type.

    A speed model returns the same array until its speeds change (`SpeedModel.grid` arrays are read-only), so the
    array itself is the version.

    Args:
        make: takes speeds in samples/s, shape (17, 17) [ps, workers], the most PSs and workers, and the smallest split.
    """

    def __init__(self, speeds: SpeedModel, make: Callable[[Grid, int, int, Allocation], Made]) -> None:
        self._speeds = speeds
        self._make = make
        self._known: dict[tuple[str, int, int, int, int], tuple[Grid, Made]] = {}

    def of(self, job: Job) -> Made:
        """What was made of this job's type under this job's caps and minimum."""
        grid = self._speeds.grid(job.job_type)
        key = (job.job_type, job.max_ps, job.max_workers, job.min_ps, job.min_workers)
        known = self._known.get(key)
        if known is None or known[0] is not grid:
            known = self._known[key] = (grid, self._make(grid, job.max_ps, job.max_workers, job.smallest))
        return known[1]
