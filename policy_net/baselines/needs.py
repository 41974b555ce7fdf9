"""How much work a job has left, as planners count it: the one place where declared and unknown work become one figure.

Where nobody declared the work, a job is taken to need as much again as it has trained so far. That is the estimate of
least regret for the heavy-tailed durations of real clusters, and makes planners weigh jobs by attained service; a fresh
job, which has attained nothing, counts as short.
Source: attained service as in Tiresias (NSDI 2019) §3.2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, Job

LEAST_REMAINING_SHARE = 0.001
"""Remaining work counts as at least this share of the declared work: a job at, or beyond, its declared end is urgent,
not infinitely so, and is not taken for finished."""

LEAST_UNKNOWN_EPOCHS = 1e-3
"""Unknown work counts as at least this much, so that fresh jobs, of which nothing is known, are alike and urgent."""


def remaining_samples(job: Job) -> float:
    """Samples that are left to train; at least a thousandth of what was declared."""
    if not job.work_known:
        return max(job.remaining_epochs, LEAST_UNKNOWN_EPOCHS) * job.samples_per_epoch
    return max(job.remaining_epochs, LEAST_REMAINING_SHARE * job.total_epochs) * job.samples_per_epoch


def remaining_seconds(job: Job, grid: NDArray[np.float64], allocation: Allocation) -> float:
    """Seconds to the job's end if it held this much, at the speeds of a grid [ps, workers]; infinite at speed 0."""
    speed = float(grid[allocation.ps, allocation.workers])
    return remaining_samples(job) / speed if speed > 0 else math.inf
