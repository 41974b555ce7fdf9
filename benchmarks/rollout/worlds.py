"""Clusters of the simulated fleets: what really happens in them, and what their agents believe of it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.policy_quality.worlds import MEASUREMENT_NOISE, nodes_at_load, workload_file
from policy_net.domain import CapacityMode, SpeedModel, speed_at
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.recorded import workload_of
from policy_net.laboratory.workloads.sources import read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload, WorkloadOptions

CLUSTERS = ("itp-01", "itp-03", "itp-05", "itp-09", "philly-0e4a51", "philly-103959", "philly-ed69ec", "philly-ee9e8c")
"""Eight of the recorded clusters, of all sizes, whose windows are weeks long and can be replayed often."""

HELD_OUT = (
    "itp-02", "itp-04", "itp-06", "itp-07", "philly-2869ce", "philly-7f04ca", "philly-b436b2", "philly-e13805",
)  # fmt: skip
"""Eight others, on which nothing was ever tuned."""

LOAD = 0.9
GPUS_PER_NODE, CPUS_PER_NODE = 2, 8
MOST_JOBS = 900
"""Of a window: a week at the busiest, two months at the quietest."""

BELIEF_SIGMA = 0.15
"""Deviation of the log of a type's believed speed from the truth, as policies decide on it."""
MEASURED_SIGMA = 0.05
"""The same of what a type's jobs turned out to do in the block: the twin replays it afterwards. A hundred intervals of
a speed that varies by 27% are known to 3%; some sizes were hardly tried."""
SCALING_SHARE = 0.5
"""Deviation of the exponent with which a speed grows with the tasks, as a share of these."""

_DAY_SECONDS = 86_400.0
_DRAWN_JOBS_A_DAY = (24.0, 48.0)
_DRAWN_MEDIAN_SECONDS = (1_800.0, 7_200.0)
_DRAWN_SIGMA = 1.2
_DRAWN_SIZES, _DRAWN_SHARES = (1, 2, 4, 8), (0.78, 0.05, 0.07, 0.1)


@dataclass(frozen=True)
class Cluster:
    """One simulated cluster.

    Attributes:
        truth: how fast its jobs really train.
        believed: how fast its agent believes they do, as it decides.
        measured: how fast its twin has them train, of what was measured.
        twin: the environment of the twin, which knows nothing of the noise in speeds.
    """

    name: str
    workload: Workload
    environment: Environment
    truth: SpeedModel
    believed: SpeedModel
    measured: SpeedModel
    twin: Environment

    @property
    def last_arrival_seconds(self) -> float:
        """When the last job is submitted."""
        return self.workload.jobs[-1].submit_time_seconds


class WrongSpeeds:
    """The truth of every type, off by a factor and by an exponent of the number of tasks; fixed by the seed."""

    def __init__(self, truth: SpeedModel, sigma: float, seed: int) -> None:
        self._truth, self._sigma, self._seed = truth, sigma, seed
        self._grids: dict[str, NDArray[np.float64]] = {}

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """As `SpeedModel.grid`."""
        if job_type not in self._grids:
            drawn = int.from_bytes(hashlib.sha256(f"{self._seed}\0{job_type}".encode()).digest()[:8])
            level, slope = np.random.default_rng(drawn).normal(0.0, (self._sigma, SCALING_SHARE * self._sigma))
            truth = self._truth.grid(job_type)
            tasks = np.maximum(np.indices(truth.shape).sum(axis=0), 1)
            self._grids[job_type] = truth * np.exp(level) * tasks**slope
        return self._grids[job_type]

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """As `SpeedModel.samples_per_second`."""
        return speed_at(self.grid(job_type), ps, workers)


def cluster_names(data: Path | None, *, held_out: bool = False) -> tuple[str, ...]:
    """The clusters of a fleet; drawn ones where there are no recordings."""
    if data is not None:
        return HELD_OUT if held_out else CLUSTERS
    first = len(CLUSTERS) if held_out else 0
    return tuple(f"drawn-{first + number}" for number in range(len(CLUSTERS)))


def missing_files(data: Path) -> list[Path]:
    """The recordings that a data folder lacks."""
    return [path for name in CLUSTERS + HELD_OUT if not (path := workload_file(data, name)).is_file()]


def build_cluster(
    name: str, data: Path | None, scratch: Path, most_days: float, measured_sigma: float = MEASURED_SIGMA
) -> Cluster:
    """Make a cluster, of the first days of its recording.

    Args:
        data: the folder with the recordings; None draws one.
        scratch: where a drawn one is written to, as it goes through the loader like any other.

    Raises:
        BadInput: the recording cannot be used.
    """
    number = (cluster_names(data) + cluster_names(data, held_out=True)).index(name)
    path = workload_file(data, name) if data is not None else _draw(scratch, name, number, most_days)
    speeds = default_speeds()
    options = WorkloadOptions(
        seed=number,
        limit_jobs=MOST_JOBS,
        job_kind=JobKindChoice.MIX,
        gpus_per_node=GPUS_PER_NODE,
        cpus_per_node=CPUS_PER_NODE,
        speeds=speeds,
    )
    whole = workload_of(read_csv(path), options)
    jobs = tuple(job for job in whole.jobs if job.submit_time_seconds < most_days * _DAY_SECONDS)
    workload = replace(whole, jobs=jobs)
    environment = Environment(
        nodes=nodes_at_load(workload, speeds, LOAD, GPUS_PER_NODE),
        gpus_per_node=GPUS_PER_NODE,
        cpus_per_node=CPUS_PER_NODE,
        decide_on=DecideOn.EVENT,
        capacity_mode=CapacityMode.POOLED,
        speed_noise=MEASUREMENT_NOISE,
        seed=number,
    )
    twin = replace(environment, speed_noise=0.0, seed=number + 1000)
    believed = WrongSpeeds(speeds, BELIEF_SIGMA, number)
    measured = WrongSpeeds(speeds, measured_sigma, number + 1000)
    return Cluster(name, workload, environment, speeds, believed, measured, twin)


def jobs_in_system(submits: NDArray[np.float64], ends: NDArray[np.float64], begin: float, end: float) -> float:
    """Jobs in the system between two times, on average; a job without an end has an infinite one."""
    inside = np.minimum(ends, end) - np.maximum(submits, begin)
    return float(np.maximum(inside, 0.0).sum() / (end - begin))


def _draw(scratch: Path, name: str, number: int, days: float) -> Path:
    """Write jobs with a day's rhythm, lognormal durations and sizes such as clusters have."""
    generator = np.random.default_rng((number, 15))
    a_day = generator.uniform(*_DRAWN_JOBS_A_DAY)
    median = generator.uniform(*_DRAWN_MEDIAN_SECONDS)
    rows: list[Sequence[object]] = []
    now = 0.0
    while now < days * _DAY_SECONDS:
        busy = 1.0 + 0.7 * np.sin(2.0 * np.pi * now / _DAY_SECONDS)
        now += float(generator.exponential(_DAY_SECONDS / (a_day * busy)))
        seconds = float(np.clip(median * np.exp(generator.normal(0.0, _DRAWN_SIGMA)), 60.0, 3 * _DAY_SECONDS))
        rows.append(
            (f"job-{len(rows)}", f"{now:.0f}", f"{seconds:.0f}", generator.choice(_DRAWN_SIZES, p=_DRAWN_SHARES))
        )
    path = scratch / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["job_id", "submit_time_s", "duration_s", "num_gpus"])
        writer.writerows(rows)
    return path
