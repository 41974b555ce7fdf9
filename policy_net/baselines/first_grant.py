"""The first tasks of a job: all that it needs to make progress, or none."""

from __future__ import annotations

from policy_net.domain import Allocation, Job, Resources

Demands = tuple[Resources, ...]
"""What each of some tasks needs."""


def first_grant(job: Job) -> Allocation | None:
    """The least with which the job trains; None if its caps allow no such thing."""
    workers = max(job.min_workers, 1)
    if workers > job.max_workers or job.min_ps > job.max_ps:
        return None
    return Allocation(workers, job.min_ps)


def demands_of(job: Job, allocation: Allocation) -> Demands:
    """What the tasks of an allocation need, workers first."""
    return (job.worker_demand,) * allocation.workers + (job.ps_demand,) * allocation.ps
