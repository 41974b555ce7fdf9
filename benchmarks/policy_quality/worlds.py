"""Workload, cluster and truth of a cell; the amounts of every disturbance stand here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.policy_quality.cells import Cell, Disturbance, Durations, RealCell, SyntheticCell
from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.metrics import alone_seconds
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.recorded import GpuRequest, clipped_gpu_load, nodes_for, workload_of
from policy_net.laboratory.workloads.sources import load_workload, read_csv
from policy_net.laboratory.workloads.workload import Estimates, JobKindChoice, Workload, WorkloadOptions, with_estimates

ARRIVALS_BY_JOBS = MappingProxyType({60: 3, 200: 10})
"""Most arrivals a slot in made-up workloads of so many jobs: the rates for which the generator suggests clusters."""

GPUS_PER_NODE = 2
CPUS_PER_NODE = 8
"""DL2's node. A recorded workload's load is in GPUs, of which every one brings the CPU for a worker and a server."""

LOCALITY_SCALE = 4
"""Where lying apart costs speed, nodes are this many times as large: 8 GPUs, as in the clusters of today."""

RUN_VARIATION = 0.273
"""Standard deviation over the mean, as papers report it of production jobs; docs/semantics.md on its two readings."""

MEASUREMENT_NOISE = RUN_VARIATION
"""Of a job's speed from one decision to the next in recorded workloads, so that nobody reads speeds off exactly. It
averages out over a job, and means the same for every policy."""

DISTURBANCES: Mapping[Disturbance, dict[str, Any]] = MappingProxyType(
    {
        Disturbance.JOB_NOISE: {"job_noise": RUN_VARIATION},
        Disturbance.SLOT_NOISE: {"speed_noise": RUN_VARIATION},
        # 2% of a slot for an elastic resize, 10% for a start from a checkpoint.
        Disturbance.RESIZE_PAUSE: {"resize_seconds": 24.0, "resume_seconds": 120.0},
        # On 24 nodes about one loss in two hours, each for two hours.
        Disturbance.NODE_LOSS: {
            "node_mtbf_seconds": 48 * 3600.0,
            "node_repair_seconds": 2 * 3600.0,
            "checkpoint_seconds": 1200.0,
            "resume_seconds": 120.0,
        },
    }
)

EPOCH_ERRORS = MappingProxyType({Disturbance.EPOCHS_20: 0.2, Disturbance.EPOCHS_50: 0.5})

DECLARATIONS = MappingProxyType(
    {
        Durations.KNOWN: Estimates(),
        Durations.LOGNORMAL: Estimates(duration_sigma=1.0),
        Durations.UNKNOWN: Estimates(known=False),
    }
)


@dataclass(frozen=True, slots=True)
class World:
    """What a policy meets in a cell."""

    workload: Workload
    environment: Environment
    speeds: SpeedModel
    placement_effect: PlacementEffect | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A recorded workload that cells can be made of."""

    name: str
    file_digest: str
    jobs: int


def workload_file(data: Path, cluster: str) -> Path:
    """Where the recorded workload of a cluster lies."""
    return data / "workloads" / f"{cluster}.csv"


def clusters_in(data: Path) -> list[Cluster]:
    """All recorded workloads of a data folder, by name.

    Raises:
        BadInput: one of them cannot be used.
    """
    return [
        Cluster(path.stem, hashlib.sha256(path.read_bytes()).hexdigest()[:16], len(read_csv(path).records))
        for path in sorted((data / "workloads").glob("*.csv"))
    ]


def build_world(cell: Cell, data: Path | None) -> World:
    """Make a cell's world.

    Args:
        data: the folder with the recorded workloads; a synthetic cell needs none.

    Raises:
        BadInput: a file cannot be used.
    """
    if isinstance(cell, SyntheticCell):
        return _synthetic(cell)
    if data is None:
        raise ValueError(f"{cell}: needs the folder with the recorded workloads")
    return _real(cell, data)


def _synthetic(cell: SyntheticCell) -> World:
    speeds = default_speeds()
    source = f"dl2:jobs={cell.jobs},arrivals=google,sizes={cell.sizes},seed={cell.seed}"
    most = ARRIVALS_BY_JOBS[cell.jobs]
    workload = load_workload(f"{source},max-arrivals={most}", WorkloadOptions(speeds=speeds))
    environment = Environment(
        nodes=cell.nodes,
        gpus_per_node=GPUS_PER_NODE,
        cpus_per_node=CPUS_PER_NODE,
        decide_on=DecideOn.SLOT,
        capacity_mode=cell.capacity,
        seed=cell.noise_seed,
        **DISTURBANCES.get(cell.disturbance, {}),
    )
    estimates = Estimates(EPOCH_ERRORS.get(cell.disturbance, 0.0))
    return World(with_estimates(workload, estimates, cell.noise_seed), environment, speeds)


def _real(cell: RealCell, data: Path) -> World:
    speeds = default_speeds()
    scale = LOCALITY_SCALE if cell.locality else 1
    gpus_per_node, cpus_per_node = scale * GPUS_PER_NODE, scale * CPUS_PER_NODE
    workload = _recorded(
        *(workload_file(data, cell.cluster), cell.model_seed, cell.window_jobs, cell.window, cell.job_kind, scale)
    )
    environment = Environment(
        nodes=nodes_at_load(workload, speeds, cell.load, gpus_per_node),
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        decide_on=DecideOn.EVENT,
        capacity_mode=cell.capacity,
        speed_noise=MEASUREMENT_NOISE,
        placement=PlacementStrategy.PACK if cell.locality else PlacementStrategy.SPREAD,
        seed=cell.noise_seed,
    )
    declared = with_estimates(workload, DECLARATIONS[cell.durations], cell.noise_seed)
    return World(declared, environment, speeds, default_placement_effect() if cell.locality else None)


def nodes_at_load(workload: Workload, speeds: SpeedModel, load: float, gpus_per_node: int = GPUS_PER_NODE) -> int:
    """The nodes on which a recorded workload is this load, or those that its largest request needs.

    Arrivals stay as they were recorded, and the number of nodes changes: so the jobs and their order are the same at
    every load, and so is the share of them that the window's end clips.
    """
    requests = []
    for spec in workload.jobs:
        duration = alone_seconds(spec, speeds)
        assert duration is not None  # noqa: S101  (work of a recorded job is its duration at this speed)
        requests.append(GpuRequest(spec.submit_time_seconds, duration, spec.requested.workers))
    return nodes_for(requests, clipped_gpu_load(requests), gpus_per_node, load)


@lru_cache(maxsize=2)
def _recorded(path: Path, model_seed: int, window_jobs: int, window: int, job_kind: str, scale: int) -> Workload:
    """The jobs of a window: the same under several conditions."""
    options = WorkloadOptions(
        seed=model_seed,
        limit_jobs=window_jobs,
        window=window,
        job_kind=JobKindChoice(job_kind),
        gpus_per_node=scale * GPUS_PER_NODE,
        cpus_per_node=scale * CPUS_PER_NODE,
        speeds=default_speeds(),
    )
    return workload_of(_recording(path), options)


@lru_cache(maxsize=32)
def _recording(path: Path) -> Recording:
    """All of them, some megabytes each: every condition goes through all clusters."""
    return read_csv(path)
