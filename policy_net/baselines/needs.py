"""Needs of a job, as planners count them: the tasks of its first grant, and the work that is left.

Declared and unknown work become one figure here and nowhere else. Where nobody declared the work, a job is taken to
need as much again as it has trained so far. That is the estimate of least regret for the heavy-tailed durations of real
clusters, and makes planners weigh jobs by attained service; a fresh job, which has attained nothing, counts as short.
Source: attained service as in Tiresias (NSDI 2019) §3.2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, Job, Resources, speed_at

Demands = tuple[Resources, ...]
"""What each of some tasks needs."""

LEAST_REMAINING_SHARE = 0.001
"""Remaining work counts as at least this share of the declared work: a job at, or beyond, its declared end is urgent,
not infinitely so, and is not taken for finished."""

LEAST_UNKNOWN_EPOCHS = 1e-3
"""Unknown work counts as at least this much, so that fresh jobs, of which nothing is known, are alike and urgent."""

LEAST_SAMPLES = 1e-9
"""Far less than one: work that rounds to nothing would make a job infinitely urgent."""


def first_grant(job: Job) -> Allocation | None:
    """The least with which the job trains; None if its caps allow no such thing."""
    workers = max(job.min_workers, 1)
    if workers > job.max_workers or job.min_ps > job.max_ps:
        return None
    return Allocation(workers, job.min_ps)


def demands_of(job: Job, allocation: Allocation) -> Demands:
    """What the tasks of an allocation need, workers first."""
    return (job.worker_demand,) * allocation.workers + (job.ps_demand,) * allocation.ps


def remaining_samples(job: Job) -> float:
    """Samples that are left to train, above 0; at least a thousandth of what was declared."""
    least = LEAST_REMAINING_SHARE * job.total_epochs if job.work_known else LEAST_UNKNOWN_EPOCHS
    return max(max(job.remaining_epochs, least) * job.samples_per_epoch, LEAST_SAMPLES)


def remaining_seconds(job: Job, grid: NDArray[np.float64], allocation: Allocation) -> float:
    """Seconds to the job's end if it held this much, at the speeds of a grid [ps, workers]; infinite at speed 0."""
    speed = speed_at(grid, allocation.ps, allocation.workers)
    return remaining_samples(job) / speed if speed > 0 else math.inf
