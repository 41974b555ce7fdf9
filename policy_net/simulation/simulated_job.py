"""One job in the simulator: its truth, how far it has come, and what schedulers get to see of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from policy_net.domain import SUSPENDED, Allocation, Job, Progress, Resources
from policy_net.simulation.noise import job_key, noise_factor
from policy_net.simulation.workload import JobSpec

ROUNDING = 1e-9
"""A job that would end within this share of an interval after it ends with the interval: work is a sum of floats."""

OVERRUN_SHARE = 0.01
"""Share of the declared epochs that a job shows as remaining once it has outrun its declaration."""


class SimulatedJob:
    """A job of the workload; mutable.

    Args:
        speed: true samples/s, indexed [ps][workers].
        seed: of the speed noise.
    """

    __slots__ = (
        "_key",
        "_speed",
        "allocation",
        "done_epochs",
        "end",
        "ps_demand",
        "run_seconds",
        "spec",
        "start",
        "worker_demand",
    )

    def __init__(
        self,
        spec: JobSpec,
        speed: Sequence[Sequence[float]],
        seed: int,
        worker_demand: Resources,
        ps_demand: Resources,
    ) -> None:
        self.spec = spec
        self._speed = speed
        self._key = job_key(seed, spec.job_id)
        self.worker_demand = worker_demand
        self.ps_demand = ps_demand
        self.reset()

    def reset(self) -> None:
        """Forget all progress."""
        self.done_epochs = 0.0
        self.run_seconds = 0.0
        self.start: float | None = None
        self.end: float | None = None
        self.allocation = SUSPENDED

    def view(self) -> Job:
        """The job as schedulers see it."""
        spec = self.spec
        # By position: this is built for every job at every decision, and keywords cost half as much again.
        return Job(
            spec.job_id,
            spec.job_type,
            spec.submit_time_seconds,
            self.worker_demand,
            self.ps_demand,
            spec.samples_per_epoch,
            spec.shown_epochs,
            self.shown_remaining(),
            spec.requested,
            spec.max_workers,
            spec.max_ps,
            self.run_seconds,
            self.allocation,
            spec.kind,
            spec.min_workers,
            spec.min_ps,
            spec.work_known,
        )

    def shown_remaining(self) -> float:
        """The epochs that schedulers believe are left: above zero as long as the job is unfinished."""
        spec = self.spec
        if spec.declared_epochs is None:
            return spec.total_epochs - self.done_epochs
        return max(spec.declared_epochs - self.done_epochs, OVERRUN_SHARE * spec.declared_epochs)

    def samples_per_second(self, decision_index: int, noise_sd: float) -> float:
        """True speed after one decision with what the job holds."""
        speed = self._speed[self.allocation.ps][self.allocation.workers]
        return speed * noise_factor(self._key, decision_index, noise_sd) if speed and noise_sd else speed

    def seconds_to_end(self, speed: float) -> float:
        """How long the job would run to its end at this speed in samples/s; infinite at 0."""
        left_samples = (self.spec.total_epochs - self.done_epochs) * self.spec.samples_per_epoch
        return left_samples / speed if speed else math.inf

    def run(self, now: float, speed: float, until: float) -> Progress:
        """Train from one decision to the next, or to the end if that comes first."""
        spec, allocation = self.spec, self.allocation
        shown_remaining = self.shown_remaining()
        needed, interval_seconds = self.seconds_to_end(speed), until - now
        # The second condition decides when the next decision was set to exactly this job's end.
        finished = needed <= interval_seconds * (1.0 + ROUNDING) or now + needed <= until
        if finished:
            seconds = min(needed, interval_seconds)
            epochs = spec.total_epochs - self.done_epochs
            self.done_epochs = spec.total_epochs
            self.end = now + seconds
        else:
            seconds = interval_seconds
            epochs = speed * seconds / spec.samples_per_epoch
            self.done_epochs += epochs
        if allocation.workers and allocation.ps:
            self.run_seconds += seconds
            if self.start is None:
                self.start = now
        samples = epochs * spec.samples_per_epoch
        return Progress(spec.job_id, spec.job_type, allocation, seconds, samples, epochs, shown_remaining, finished)

    def to_snapshot(self) -> dict[str, Any]:
        """What has happened to the job, as JSON-able values."""
        return {
            "job_id": self.spec.job_id,
            "done_epochs": self.done_epochs,
            "run_seconds": self.run_seconds,
            "start_seconds": self.start,
            "end_seconds": self.end,
            "workers": self.allocation.workers,
            "ps": self.allocation.ps,
        }

    def restore(self, row: Mapping[str, Any]) -> None:
        """Continue from `to_snapshot`."""
        self.done_epochs, self.run_seconds = row["done_epochs"], row["run_seconds"]
        self.start, self.end = row["start_seconds"], row["end_seconds"]
        self.allocation = Allocation(row["workers"], row["ps"])
