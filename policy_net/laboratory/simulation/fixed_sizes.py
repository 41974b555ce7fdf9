"""Jobs that keep the size that they asked for: the share of a workload that cannot be resized.

Which jobs these are is drawn by a hash of seed and id, so that it depends on no other job. They may still be suspended
and resumed. A job that asked for more than the empty cluster holds is cut under every policy, and stays resizable.
"""

from __future__ import annotations

from dataclasses import replace

from policy_net.errors import BadInput
from policy_net.laboratory.noise import job_key, uniform
from policy_net.laboratory.simulation.admission import fits_empty_cluster
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob


def with_elastic_share(workload: Workload, environment: Environment, share: float, seed: int) -> Workload:
    """The workload in which only a share of the jobs may change size; with a note that says so.

    Args:
        share: 0 to 1, of the jobs; the others have what they asked for, or nothing.

    Raises:
        BadInput: the share is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:  # false for NaN too
        raise BadInput(f"elastic-share is {share}: use a number from 0 to 1")
    if share == 1.0:
        return workload
    known: dict[tuple[object, ...], bool] = {}
    jobs = []
    for job in workload.jobs:
        if uniform(job_key(seed, f"elastic {job.job_id}"), 0) >= share:
            fixed = _fixed(job)
            key = (fixed.worker_demand, fixed.ps_demand, fixed.requested)
            if key not in known:
                known[key] = fits_empty_cluster(fixed, environment)
            jobs.append(fixed if known[key] else job)
        else:
            jobs.append(job)
    kept = sum(job.fixed_size for job in jobs)
    note = f"{kept} of {len(jobs)} jobs keep the size that they asked for, drawn with seed {seed}"
    return replace(workload, jobs=tuple(jobs), notes=(*workload.notes, note))


def _fixed(job: WorkloadJob) -> WorkloadJob:
    workers = min(max(job.requested.workers, job.min_workers), job.max_workers)
    ps = min(max(job.requested.ps, job.min_ps), job.max_ps)
    return replace(job, min_workers=workers, max_workers=workers, min_ps=ps, max_ps=ps)
