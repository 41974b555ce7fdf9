"""Lower bounds on average JCT: what no scheduler can go below on a workload, whatever it knows.

Two relaxations of pooled capacity without noise, of which the larger counts. Every job alone, at its best size from the
moment of its submission; and all jobs on one machine that is as fast as the whole cluster is where every job trains at
the size that makes most of what it holds, the one with the least left first, which is optimal there.
Source: Schrage 1968 (shortest remaining processing time).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import SpeedModel
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import JobSpec, Workload

GPU_WEIGHTS = (1.0, 0.6)
"""A size counts for its share of the GPUs at this weight and of the CPU at the rest: any weight gives a bound. With 0.6
servers cost something, and workers most of what they do with 1."""


def bound_seconds(workload: Workload, environment: Environment, speeds: SpeedModel) -> float:
    """No scheduler can have a lower average JCT, in seconds, without noise and with capacity as a sum.

    Raises:
        ValueError: a job can train nowhere.
    """
    found = []
    for weight in GPU_WEIGHTS:
        needs = [_needs(job, environment, speeds, weight) for job in workload.jobs]
        submitted = [job.submit_time_seconds for job in workload.jobs]
        found.append(mean_on_one_machine(submitted, [of_cluster for _, of_cluster in needs]))
        found.append(math.fsum(alone for alone, _ in needs) / len(needs))
    return max(found)


def _needs(job: JobSpec, environment: Environment, speeds: SpeedModel, gpu_weight: float) -> tuple[float, float]:
    """Seconds that a job trains at its best size, and seconds of the whole cluster that it takes at its thriftiest."""
    workers, ps, speed = _sizes(job, speeds.grid(job.job_type))
    gpus = workers * job.worker_demand.gpu + ps * job.ps_demand.gpu
    cpu = workers * job.worker_demand.cpu_milli + ps * job.ps_demand.cpu_milli
    total_cpu = sum(node.capacity.cpu_milli for node in environment.node_list)
    fits = (gpus <= environment.gpus) & (cpu <= total_cpu) & (speed > 0.0)
    if not fits.any():
        raise ValueError(f"job {job.job_id} can train nowhere")
    share = gpu_weight * gpus / max(environment.gpus, 1) + (1.0 - gpu_weight) * cpu / total_cpu
    samples = job.total_epochs * job.samples_per_epoch
    return samples / float(speed[fits].max()), samples * float((share[fits] / speed[fits]).min())


def _sizes(job: JobSpec, grid: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Workers, servers and speed of every size that a job may have, each of shape (sizes,)."""
    least_ps, most_ps = (max(job.min_ps, 1), job.max_ps) if job.kind.uses_ps else (0, 0)
    part = grid[least_ps : most_ps + 1, 1 : job.max_workers + 1]
    ps, workers = np.indices(part.shape)
    return workers.ravel() + 1, ps.ravel() + least_ps, part.ravel()


def mean_on_one_machine(submitted: Sequence[float], seconds: Sequence[float]) -> float:
    """The mean time from submission to end where one machine takes the job with the least left, in seconds."""
    coming = sorted(zip(submitted, seconds, strict=True), reverse=True)
    present: list[tuple[float, float]] = []
    now = total = 0.0
    while coming or present:
        if not present:
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            at, length = coming.pop()
            heapq.heappush(present, (length, at))
        left, at = heapq.heappop(present)
        until = min(now + left, coming[-1][0] if coming else math.inf)
        if until < now + left:
            heapq.heappush(present, (left - (until - now), at))
        else:
            total += until - at
        now = until
    return total / len(submitted)
