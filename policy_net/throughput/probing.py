"""Allocations to try once with a job type of which too little is known.

A scheduler that follows its belief keeps an idle cluster's only job of a type where it is, and never learns that
another size would be faster. So the first jobs of a type are given a few that tell the terms of the speed model apart.
Source: Optimus (EuroSys 2018) §3.2 runs every new job on a small part of its data under a few allocations.
Deviation: the probes are ordinary decisions of real training, once per type, not per job; none is needed where
contention has already shown enough different allocations.
"""

from __future__ import annotations

from policy_net.domain import Allocation, ClusterState, Job, JobKind
from policy_net.throughput.beliefs import Beliefs

PROBES = (
    Allocation(workers=1, ps=8),
    Allocation(workers=1, ps=2),
    Allocation(workers=4, ps=4),
    Allocation(workers=6, ps=2),
    Allocation(workers=1, ps=16),
    Allocation(workers=8, ps=8),
)
"""In the order in which they are tried: those first that pay for most models, so that little is lost meanwhile."""

ALLREDUCE_PROBES = (Allocation(workers=4), Allocation(workers=1), Allocation(workers=8), Allocation(workers=2))
"""The same for jobs without parameter servers."""

ENOUGH_ALLOCATIONS = 6
"""Different allocations after which a type is known well enough to plan with: one more than the model has terms."""
ENOUGH_FOR_ALLREDUCE = 4


def choose_probes(state: ClusterState, beliefs: Beliefs) -> dict[int, Allocation]:
    """Which job (its index) should be given which allocation next, at most one job of a type; by arrival.

    A probe takes no more than the job's equal share of the cluster: under contention nobody pays for learning, and
    there allocations change often enough anyway. Beliefs that are optimistic by themselves need none.
    """
    probes: dict[int, Allocation] = {}
    if beliefs.optimistic:
        return probes
    decided: set[str] = set()
    total = state.total
    for index, job in enumerate(state.jobs):
        if job.job_type in decided:
            continue
        decided.add(job.job_type)
        seen = beliefs.allocations_seen(job.job_type)
        if len(seen) >= (ENOUGH_ALLOCATIONS if job.kind.uses_ps else ENOUGH_FOR_ALLREDUCE):
            continue
        for probe in ALLREDUCE_PROBES if job.kind is JobKind.ALLREDUCE else PROBES:
            if probe not in seen and _may_have(job, probe):
                needed = job.worker_demand * probe.workers + job.ps_demand * probe.ps
                if (needed * len(state.jobs)).fits_in(total):
                    probes[index] = probe
                    break
    return probes


def _may_have(job: Job, probe: Allocation) -> bool:
    return job.can_train(probe) and probe.workers <= job.max_workers and probe.ps <= job.max_ps
