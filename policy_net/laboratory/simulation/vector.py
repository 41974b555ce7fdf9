"""Vectorised simulation: many clusters in one call, slot decisions and pooled capacity as arrays, for training.

The dynamics are those of `engine.Simulation`, operation for operation (a test holds the two against each other); what
is missing is placement on nodes, event decisions, pauses, nodes that come and go, and jobs of unknown work. Job j of
cluster b is the j-th job of its workload, so rows do not move while jobs come and go; `present_BJ` says who is there.

Legend: B clusters, J jobs of the largest workload, T job types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from policy_net.domain import CapacityMode, SpeedModel
from policy_net.errors import BadInput, InvalidAllocation
from policy_net.laboratory.noise import JOB_PART, job_key, noise_factor, noise_factors
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.environment import DecideOn, Environment, decision_on_arrival
from policy_net.laboratory.simulation.simulated_job import OVERRUN_SHARE, ROUNDING
from policy_net.laboratory.workloads.workload import JobSpec, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""Arrival slot of a row without a job."""


@dataclass(frozen=True)
class VectorStep:
    """What one slot brought, shape (B, J); zero where no job was present.

    Attributes:
        seconds_BJ: how long a job trained; zero for fewer tasks than it trains with.
        remaining_BJ: declared epochs that were left at the start.
        done_B: clusters all of whose jobs have ended.
    """

    epochs_BJ: Floats
    samples_BJ: Floats
    seconds_BJ: Floats
    remaining_BJ: Floats
    finished_BJ: Bools
    done_B: Bools


class VectorSimulation:
    """One kind of cluster, many workloads side by side; drive it with `step` until every cluster is done.

    Raises:
        BadInput: the environment or a workload needs what only `Simulation` can do, there is no workload, or a job can
            never run.
    """

    def __init__(self, environment: Environment, speeds: SpeedModel) -> None:
        if environment.decide_on is not DecideOn.SLOT or environment.capacity_mode is not CapacityMode.POOLED:
            raise BadInput("many clusters in one call need slot decisions and pooled capacity: use Simulation instead")
        for name in ("resize_seconds", "resume_seconds", "start_seconds", "changes_nodes"):
            if getattr(environment, name):
                raise BadInput(f"many clusters in one call do without pauses and changes of nodes, but {name} is set:"
                               " use Simulation instead")  # fmt: skip
        self.environment = environment
        self._speeds = speeds

    def reset(self, workloads: Sequence[Workload]) -> None:
        """Start these workloads, from their beginning."""
        if not workloads:
            raise BadInput("reset needs at least one workload")
        environment = self.environment
        self.job_types = sorted({job.job_type for workload in workloads for job in workload.jobs})
        grids = {name: self._speeds.grid(name) for name in self.job_types}
        for workload in workloads:
            check_jobs_can_run(workload, environment, {name: grid.tolist() for name, grid in grids.items()})
            if not all(job.work_known for job in workload.jobs):
                raise BadInput(f"workload {workload.name!r} has jobs of unknown work: use Simulation instead")
        # Types of different kinds have grids of different shapes.
        sides = np.max([grid.shape for grid in grids.values()], axis=0)
        self._grids_TPW = np.zeros((len(self.job_types), *sides))
        for number, name in enumerate(self.job_types):
            rows, columns = grids[name].shape
            self._grids_TPW[number, :rows, :columns] = grids[name]
        type_index = {name: index for index, name in enumerate(self.job_types)}

        def table(of: Callable[[JobSpec], float], empty: float, dtype: DTypeLike) -> NDArray[Any]:
            values = np.full((len(workloads), max(len(workload.jobs) for workload in workloads)), empty, dtype=dtype)
            for row, workload in zip(values, workloads, strict=True):
                row[: len(workload.jobs)] = [of(job) for job in workload.jobs]
            return values

        self.type_BJ: Ints = table(lambda job: type_index[job.job_type], 0, np.int64)
        self.total_BJ: Floats = table(lambda job: job.total_epochs, 0.0, np.float64)
        self.shown_total_BJ: Floats = table(lambda job: job.shown_epochs, 0.0, np.float64)
        self.samples_per_epoch_BJ: Floats = table(lambda job: job.samples_per_epoch, 1.0, np.float64)
        self.submit_BJ: Floats = table(lambda job: job.submit_time_seconds, np.inf, np.float64)
        caps = (table(lambda job: job.max_workers, 0, np.int64), table(lambda job: job.max_ps, 0, np.int64))
        self.caps_BJ2: Ints = np.stack(caps, axis=2)
        least = (table(lambda job: job.min_workers, 1, np.int64), table(lambda job: job.min_ps, 0, np.int64))
        self.least_BJ2: Ints = np.stack(least, axis=2)
        self._declared_BJ: Bools = table(lambda job: job.declared_epochs is not None, False, np.bool_)
        self._keys_BJ: NDArray[np.uint64] = table(lambda job: job_key(environment.seed, job.job_id), 0, np.uint64)
        job_noise = environment.job_noise
        self._job_factor_BJ: Floats = table(
            lambda job: noise_factor(job_key(environment.seed, job.job_id), JOB_PART, job_noise), 1.0, np.float64
        )
        # Demands per task, last axis worker and PS; one array a resource.
        cpu = (lambda job: job.worker_demand.cpu_milli), (lambda job: job.ps_demand.cpu_milli)
        gpu = (lambda job: job.worker_demand.gpu), (lambda job: job.ps_demand.gpu)
        self.cpu_milli_BJ2: Ints = np.stack([table(of, 0, np.int64) for of in cpu], axis=2)
        self.gpu_BJ2: Ints = np.stack([table(of, 0, np.int64) for of in gpu], axis=2)

        slot_seconds = environment.slot_seconds
        self._arrival_slot_BJ: Ints = table(
            lambda job: round(decision_on_arrival(environment, job.submit_time_seconds, 0.0)[0] / slot_seconds),
            NEVER,
            np.int64,
        )
        self.done_epochs_BJ: Floats = np.zeros_like(self.total_BJ)
        self.run_seconds_BJ: Floats = np.zeros_like(self.total_BJ)
        self.end_BJ: Floats = np.full_like(self.total_BJ, np.nan)
        self.allocation_BJ2: Ints = np.zeros_like(self.caps_BJ2)
        self._decisions_B: NDArray[np.uint64] = np.zeros(len(workloads), dtype=np.uint64)
        self._slot_B: Ints = self._arrival_slot_BJ.min(axis=1)

    @property
    def time_B(self) -> Floats:  # noqa: N802  (shape suffix)
        """The time of each cluster's next decision."""
        return np.asarray(self._slot_B * self.environment.slot_seconds, dtype=np.float64)

    @property
    def present_BJ(self) -> Bools:  # noqa: N802  (shape suffix)
        """Jobs that have arrived and not ended."""
        present: Bools = (self._arrival_slot_BJ <= self._slot_B[:, None]) & np.isnan(self.end_BJ)
        return present

    @property
    def done_B(self) -> Bools:  # noqa: N802  (shape suffix)
        """Clusters all of whose jobs have ended."""
        done: Bools = ((self._arrival_slot_BJ == NEVER) | ~np.isnan(self.end_BJ)).all(axis=1)
        return done

    @property
    def remaining_BJ(self) -> Floats:  # noqa: N802  (shape suffix)
        """Epochs that schedulers believe are left, above zero while a job is unfinished."""
        left = self.shown_total_BJ - self.done_epochs_BJ
        shown: Floats = np.where(self._declared_BJ, np.maximum(left, OVERRUN_SHARE * self.shown_total_BJ), left)
        return shown

    def avg_jct_seconds_B(self) -> Floats:  # noqa: N802  (shape suffix)
        """Mean completion time of the jobs that have ended, per cluster; NaN where none has."""
        ended = ~np.isnan(self.end_BJ)
        total = np.where(ended, self.end_BJ - self.submit_BJ, 0.0).sum(axis=1)
        count = ended.sum(axis=1)
        means: Floats = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
        return means

    def step(self, allocation_BJ2: Ints) -> VectorStep:
        """Run one slot everywhere with these (workers, PSs), then go to the next slot that has jobs.

        Raises:
            InvalidAllocation: tasks for a job that is not present, or beyond its caps or the cluster's capacity.
                Nothing has changed then.
        """
        present = self.present_BJ
        self._check(allocation_BJ2, present)
        workers_BJ, ps_BJ = allocation_BJ2[..., 0], allocation_BJ2[..., 1]
        trains = (allocation_BJ2 >= self.least_BJ2).all(axis=2)
        speed = np.where(trains, self._grids_TPW[self.type_BJ, ps_BJ, workers_BJ] * self._job_factor_BJ, 0.0)
        noise_sd = self.environment.speed_noise
        if noise_sd:
            speed = speed * noise_factors(self._keys_BJ, self._decisions_B[:, None], noise_sd)
        now = self.time_B[:, None]
        until = (self._slot_B[:, None] + 1) * self.environment.slot_seconds
        left = self.total_BJ - self.done_epochs_BJ
        needed = np.divide(left * self.samples_per_epoch_BJ, speed, out=np.full_like(speed, np.inf), where=speed > 0)
        finished = present & ((needed <= (until - now) * (1.0 + ROUNDING)) | (now + needed <= until))
        seconds = np.where(trains, np.minimum(needed, until - now), 0.0)
        epochs = np.where(finished, left, speed * seconds / self.samples_per_epoch_BJ)
        remaining = np.where(present, self.remaining_BJ, 0.0)

        self.done_epochs_BJ = np.where(finished, self.total_BJ, self.done_epochs_BJ + epochs)
        self.run_seconds_BJ += seconds
        self.end_BJ = np.where(finished, now + seconds, self.end_BJ)
        self.allocation_BJ2 = allocation_BJ2.copy()
        self._decisions_B += present.any(axis=1).astype(np.uint64)
        self._go_on()
        return VectorStep(epochs, epochs * self.samples_per_epoch_BJ, seconds, remaining, finished, self.done_B)

    def _go_on(self) -> None:
        """To the next slot, or to the next arrival where no job is left; clusters that are done stay where they are."""
        following = self._slot_B + 1
        next_needed = np.where(np.isnan(self.end_BJ), self._arrival_slot_BJ, NEVER).min(axis=1)
        self._slot_B = np.where(next_needed == NEVER, self._slot_B, np.maximum(following, next_needed))

    def _check(self, allocation_BJ2: Ints, present: Bools) -> None:
        if allocation_BJ2.shape != self.caps_BJ2.shape:
            raise InvalidAllocation(f"the allocation has shape {allocation_BJ2.shape}: use {self.caps_BJ2.shape}")
        beyond = (allocation_BJ2 < 0) | (allocation_BJ2 > np.where(present[..., None], self.caps_BJ2, 0))
        if beyond.any():
            cluster, job, _ = np.argwhere(beyond)[0]
            workers, ps = allocation_BJ2[cluster, job]
            raise InvalidAllocation(
                f"cluster {cluster}, job {job}: {workers} workers and {ps} PSs are outside its caps, or it is not there"
            )
        environment = self.environment
        for name, demand_BJ2, total in (
            ("millicores", self.cpu_milli_BJ2, environment.nodes * environment.cpus_per_node * 1000),
            ("GPUs", self.gpu_BJ2, environment.nodes * environment.gpus_per_node),
        ):
            needed = (demand_BJ2 * allocation_BJ2).sum(axis=(1, 2))
            if (needed > total).any():
                cluster = int(needed.argmax())
                raise InvalidAllocation(f"cluster {cluster}: {needed[cluster]} {name} are allocated, it has {total}")
