"""What the residual sees of every job: ratios, so that it means the same in clusters and for jobs of every size.

Legend: J jobs, K own features of a job, F inputs = 2·K + 3.
Each own feature stands there twice, once times contention: what is right in an empty cluster is wrong in a full one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.remaining import remaining_samples
from policy_net.domain import ClusterState, Job, Resources
from policy_net.exchange.set_spec import SET_INPUTS
from policy_net.placement.capacity import dominant_share
from policy_net.set_policy.steps import StepTable
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

Array = NDArray[np.float64]

LARGEST_SHARE = 100.0
OWN_FEATURES = 9
CONTEXT_FEATURES = 3
assert SET_INPUTS == 2 * OWN_FEATURES + CONTEXT_FEATURES  # noqa: S101  (two modules state one width)


def job_inputs(state: ClusterState, tables: Sequence[StepTable], uncertainties: Sequence[float]) -> Array:
    """Inputs of all jobs, shape (J, F), each of order one.

    Args:
        tables: of every job.
        uncertainties: of every job, the deviation of the log of its believed best speed.
    """
    jobs = state.jobs
    if not jobs:
        return np.empty((0, SET_INPUTS))
    own = np.empty((len(jobs), OWN_FEATURES))
    total = state.total
    for row, job, table, uncertainty in zip(own, jobs, tables, uncertainties, strict=True):
        row[:] = _own_features(job, table, uncertainty, total, state.slot_seconds)
    demand = float(own[:, 5].sum())
    contention = math.log(max(demand, 1e-3)) / 2.0
    contention = min(max(contention, -1.5), 1.5)
    lengths = own[:, 0].copy()
    own[:, 0] -= lengths.mean()
    ordered = np.sort(lengths)
    shorter, not_longer = ordered.searchsorted(lengths, "left"), ordered.searchsorted(lengths, "right")
    own[:, 8] = (shorter + not_longer) / (2 * len(jobs)) - 0.5
    own[:, 5] = np.log(np.maximum(own[:, 5], 1e-4)) / 4.0 + 0.5
    context = np.array((contention, contention * contention, float(own[:, 3].mean())))
    return np.hstack((own, own * contention, np.broadcast_to(context, (len(jobs), CONTEXT_FEATURES))))


def _own_features(
    job: Job, table: StepTable, uncertainty: float, total: Resources, slot_seconds: float
) -> tuple[float, ...]:
    best = table.best
    if table.best_speed <= 0.0:
        return (0.0,) * OWN_FEATURES
    slots_left = remaining_samples(job) / table.best_speed / slot_seconds
    length = math.log(max(slots_left, 1e-3)) / 2.0
    first = table.slowest_speed
    # Infinite where the cluster has none of what the job needs, as when all its nodes are away.
    share = min(dominant_share(job.worker_demand * best.workers + job.ps_demand * best.ps, total), LARGEST_SHARE)
    return (
        length,  # becomes that over the mean of all jobs
        length,
        0.0 if job.work_known else 1.0,
        uncertainty,
        math.log(table.best_speed / first) / 2.0 if first > 0 else 0.0,
        share,  # becomes its log
        math.log1p(job.run_seconds / (slots_left * slot_seconds)) / 2.0,
        job.current.tasks / best.tasks,
        0.0,  # becomes the rank of the length
    )


def uncertainty_of(beliefs: GaussianProcessBeliefs | None, job: Job, table: StepTable) -> float:
    """Deviation of the log of the believed best speed of a job; 0 where speeds are known."""
    if beliefs is None:
        return 0.0
    return beliefs.deviation(job.job_type, table.best.ps, table.best.workers)
