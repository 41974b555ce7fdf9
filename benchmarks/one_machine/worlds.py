"""Worlds of one machine: few jobs at a time, decisions on events, starts that cost, and types that nobody has seen.

The types are drawn, each from constants of its own, and no prior knows them: who submits jobs to a workstation brings
models of his own. A tenth of noise, as jobs share caches and memory; work is declared.
"""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, CapacityMode, JobKind, Resources, speed_at
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.speeds.speed import GRID_SIDE, default_speeds
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.workload import JobSpec, Workload

OWN_TYPE = "own-"
_NOISE = 0.1
"""Of a job's speed from slot to slot."""
_MOST_TYPES = 4


class OwnTypes:
    """Speeds of the types of the package, and of those that worlds of one machine draw."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """See `SpeedModel`."""
        return speed_at(self.grid(job_type), ps, workers)

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """See `SpeedModel`."""
        return _drawn_grid(job_type) if job_type.startswith(OWN_TYPE) else default_speeds().grid(job_type)


def _type_name(world: int, number: int, kind: JobKind) -> str:
    return f"{OWN_TYPE}{kind.value}-{world}-{number}"


@cache
def _drawn_grid(job_type: str) -> NDArray[np.float64]:
    """Speeds in samples/s, shape (17, 17) [ps, workers], by what a synchronous step takes.

    A step of one worker computes for 1; p parameter servers and w workers make that 1/w, and w/p of an exchange, beside
    what is done once a step whatever the number: from models that scale to the last worker to those that hardly do.
    """
    draw = random.Random(job_type)
    once, exchange = _log_uniform(draw, 0.01, 2.0), _log_uniform(draw, 0.003, 0.3)
    unit = _log_uniform(draw, 30.0, 10_000.0)
    grid = np.zeros((GRID_SIDE, GRID_SIDE))
    workers = np.arange(1, GRID_SIDE)
    if f"-{JobKind.ALLREDUCE.value}-" in job_type:
        grid[0, 1:] = unit / (1.0 / workers + np.where(workers > 1, once, 0.0) + exchange * np.log2(workers))
    else:
        ps = np.arange(1, GRID_SIDE)[:, None]
        grid[1:, 1:] = unit / (1.0 / workers + once + exchange * workers / ps)
    grid.setflags(write=False)
    return grid


def machine_world(number: int) -> Episode:
    """World by number: a machine of some cores, or cores and GPUs, and jobs of types of its own."""
    draw = random.Random(f"machine {number}")
    bundles = draw.choice((3, 4, 6, 8, 12, 16))
    gpus = draw.random() < 0.3
    worker_milli, ps_milli = (2000, 1000) if gpus else (4000, draw.choice((1000, 2000, 4000)))
    worker = Resources(worker_milli, 1 if gpus else 0)
    cores = math.ceil(bundles * (worker_milli + ps_milli) / 1000)
    scale = _log_uniform(draw, 1.0, 10.0)
    pause = _log_uniform(draw, 2.0, 12.0)
    kinds = draw.choice(((JobKind.PS,), (JobKind.PS,), (JobKind.ALLREDUCE,), (JobKind.PS, JobKind.ALLREDUCE)))
    types = [_type_name(number, index, draw.choice(kinds)) for index in range(draw.randint(2, _MOST_TYPES))]
    count = draw.randint(10, 30)
    load = draw.uniform(0.4, 2.0)
    alone = [_log_uniform(draw, 8.0, 90.0) * scale for _ in range(count)]
    gap = sum(alone) / count / bundles / load
    most = draw.choice((4, 8, 16))
    at, jobs = 0.0, []
    for index, seconds in enumerate(alone):
        job_type = types[index] if index < len(types) else draw.choice(types)
        kind = JobKind.ALLREDUCE if f"-{JobKind.ALLREDUCE.value}-" in job_type else JobKind.PS
        uses_ps = kind.uses_ps
        epochs = draw.randint(1, 100)
        speed = float(_drawn_grid(job_type)[1 if uses_ps else 0, 1])
        jobs.append(
            JobSpec(
                job_id=f"job-{index}",
                job_type=job_type,
                submit_time_seconds=at,
                total_epochs=float(epochs),
                samples_per_epoch=seconds * speed / epochs,
                worker_demand=worker,
                ps_demand=Resources(ps_milli if uses_ps else 0),
                requested=Allocation(draw.choice((1, 2, 2, 4)), 1 if uses_ps else 0),
                max_workers=most,
                max_ps=max(1, most // 2) if uses_ps else 0,
                kind=kind,
                min_ps=1 if uses_ps else 0,
            )
        )
        at += draw.expovariate(1.0 / gap)
    environment = Environment(
        nodes=1,
        gpus_per_node=bundles if gpus else 0,
        cpus_per_node=cores,
        slot_seconds=draw.choice((15.0, 30.0, 60.0)),
        decide_on=DecideOn.EVENT,
        debounce_seconds=2.0,
        capacity_mode=CapacityMode.POOLED,
        speed_noise=_NOISE,
        seed=number % 1000,
        start_seconds=pause,
        resume_seconds=pause,
    )
    return Workload("one machine", tuple(jobs), (), suggested_nodes=1), environment


def _log_uniform(draw: random.Random, least: float, most: float) -> float:
    return least * float((most / least) ** draw.random())
