"""Job in the simulator: its truth, its progress and what schedulers see of it; and the table of all jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy_net.domain import SUSPENDED, Allocation, Job, Progress, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.noise import JOB_PART, job_key, noise_factor
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import JobOutcome, RunCounters
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob

ROUNDING = 1e-9
"""A job that would end within this share of an interval after it ends with the interval: work is a sum of floats."""

OVERRUN_SHARE = 0.01
"""Share of the declared epochs that a job shows as remaining once it has outrun its declaration."""

LEAST_SHOWN_EPOCHS = 300.0
"""A job of unknown work shows at least so much as remaining: about ten minutes of a model of middling speed on a GPU or
two. The same for all jobs, since anything that followed from a job's speed or length would give it away."""


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """A job in the cluster, whose noise the environment's seed draws; `speed` is true samples/s, [ps][workers]."""

    spec: WorkloadJob
    speed: Sequence[Sequence[float]]
    environment: Environment
    worker_demand: Resources
    ps_demand: Resources
    done_epochs: float = 0.0
    run_seconds: float = 0.0
    start: float | None = None
    end: float | None = None
    allocation: Allocation = SUSPENDED
    can_train: bool = False
    pause_seconds: float = 0.0
    checkpoint_epochs: float = 0.0
    _trained_since_checkpoint_seconds: float = 0.0
    _view: Job | None = None
    _key: int = field(init=False)
    _job_factor: float = field(init=False)

    def __post_init__(self) -> None:
        self._key = job_key(self.environment.seed, self.spec.job_id)
        self._job_factor = noise_factor(self._key, JOB_PART, self.environment.job_noise)

    def view(self) -> Job:
        """The job as schedulers see it; the same object as long as nothing happens to it."""
        if self._view is None:
            self._view = self._build_view()
        return self._view

    def _build_view(self) -> Job:
        spec = self.spec
        remaining = self.shown_remaining()
        # By position: this is built for every job at every decision, and keywords cost half as much again.
        return Job(
            spec.job_id,
            spec.job_type,
            spec.submit_time_seconds,
            self.worker_demand,
            self.ps_demand,
            spec.samples_per_epoch,
            spec.shown_epochs if spec.work_known else self.reported_epochs + remaining,
            remaining,
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

    @property
    def reported_epochs(self) -> float:
        """The epochs that it says it has trained."""
        return self.done_epochs * self.spec.report_factor

    def shown_remaining(self) -> float:
        """The epochs that schedulers believe are left: above zero as long as the job is unfinished."""
        spec = self.spec
        if not spec.work_known:
            return max(self.reported_epochs, LEAST_SHOWN_EPOCHS)
        if spec.declared_epochs is None:
            return spec.total_epochs - self.done_epochs
        return max(spec.declared_epochs - self.reported_epochs, OVERRUN_SHARE * spec.declared_epochs)

    def set_allocation(self, allocation: Allocation, counters: RunCounters, *, moved: bool = False) -> None:
        """Change the allocation; a job with another size or place, or that runs again, may have to pause."""
        spec, could_train = self.spec, self.can_train
        # As `Job.can_train`; a specification has at least one worker as its minimum.
        can_train = allocation.workers >= spec.min_workers and allocation.ps >= spec.min_ps
        # A job that lost a task holds enough, and yet does not train: it has to start again.
        if can_train == could_train and allocation == self.allocation and not (moved and can_train):
            return
        self._view = None
        self.can_train = can_train
        self.allocation = allocation
        if not self.can_train:
            if could_train:
                self._checkpoint()
            self.pause_seconds = 0.0
        elif could_train:
            counters.resizes += 1
            self.pause_seconds = max(self.pause_seconds, self.environment.resize_seconds)
        elif self.start is not None:
            counters.resumes += 1
            self.pause_seconds = self.environment.resume_seconds
        else:
            self.pause_seconds = self.environment.start_seconds

    def samples_per_second(self, decision_index: int) -> float:
        """True speed after one decision with what the job holds, once it does not pause."""
        if not self.can_train:
            return 0.0
        by_workers, workers = self.speed[self.allocation.ps], self.allocation.workers
        speed = by_workers[workers] * self._job_factor if workers < len(by_workers) else 0.0
        noise_sd = self.environment.speed_noise
        return speed * noise_factor(self._key, decision_index, noise_sd) if speed and noise_sd else speed

    def end_seconds(self, now: float, speed: float) -> float:
        """When the job would end, from `now` on at this speed in samples/s after its pause; infinite at 0."""
        return now + self.pause_seconds + self._needed_seconds(speed)

    def _needed_seconds(self, speed: float) -> float:
        left_samples = (self.spec.total_epochs - self.done_epochs) * self.spec.samples_per_epoch
        return left_samples / speed if speed else math.inf

    def run(
        self,
        now: float,
        speed: float,
        until: float,
        counters: RunCounters,
        places: tuple[tuple[str, int], ...] = (),
    ) -> Progress:
        """Pause and train up to the next decision, or to the end if that comes first; `places` as in `Progress`."""
        spec, allocation = self.spec, self.allocation
        shown_remaining = self.shown_remaining()
        if not self.can_train:
            return Progress(spec.job_id, spec.job_type, allocation, 0.0, 0.0, 0.0, shown_remaining)
        self._view = None
        paused = 0.0
        if self.pause_seconds:
            paused = min(self.pause_seconds, until - now)
            # Not by subtraction alone: what is left of a pause that was served must be exactly zero.
            self.pause_seconds = 0.0 if now + self.pause_seconds <= until else self.pause_seconds - paused
            counters.pause_seconds += paused
        needed, seconds = self._needed_seconds(speed), until - now - paused
        # The second condition decides when the next decision was set to exactly this job's end.
        finished = needed <= seconds * (1.0 + ROUNDING) or now + paused + needed <= until
        if finished:
            seconds = min(needed, seconds)
            epochs = spec.total_epochs - self.done_epochs
            self.done_epochs = spec.total_epochs
            self.end = now + paused + seconds
        else:
            epochs = speed * seconds / spec.samples_per_epoch
            self.done_epochs += epochs
            if self.environment.checkpoint_seconds:
                self._checkpoint_regularly(speed, seconds)
        self.run_seconds += paused + seconds
        if self.start is None:
            self.start = now
        epochs *= spec.report_factor
        samples = epochs * spec.samples_per_epoch
        return Progress(
            spec.job_id, spec.job_type, allocation, seconds, samples, epochs, shown_remaining, finished, paused, places
        )

    def lose(self, lost: Allocation, counters: RunCounters) -> None:
        """Lose tasks with their node: stop until the next decision, and go back to the last checkpoint."""
        self._view = None
        self.allocation = Allocation(self.allocation.workers - lost.workers, self.allocation.ps - lost.ps)
        if self.can_train and self.environment.checkpoint_seconds:
            counters.lost_training_seconds += self._trained_since_checkpoint_seconds
            self.done_epochs = self.checkpoint_epochs
            self._trained_since_checkpoint_seconds = 0.0
        self.can_train, self.pause_seconds = False, 0.0

    def _checkpoint(self) -> None:
        self.checkpoint_epochs, self._trained_since_checkpoint_seconds = self.done_epochs, 0.0

    def _checkpoint_regularly(self, speed: float, seconds: float) -> None:
        every = self.environment.checkpoint_seconds
        since = self._trained_since_checkpoint_seconds + seconds
        if since >= every:
            since %= every
            self.checkpoint_epochs = self.done_epochs - speed * since / self.spec.samples_per_epoch
        self._trained_since_checkpoint_seconds = since

    def to_snapshot(self) -> dict[str, Any]:
        """What has happened to the job, as JSON-able values."""
        return {
            "job_id": self.spec.job_id,
            "done_epochs": self.done_epochs,
            "run_seconds": self.run_seconds,
            "start_seconds": self.start,
            "workers": self.allocation.workers,
            "ps": self.allocation.ps,
            "can_train": self.can_train,
            "pause_seconds": self.pause_seconds,
            "checkpoint_epochs": self.checkpoint_epochs,
            "trained_since_checkpoint_seconds": self._trained_since_checkpoint_seconds,
        }

    def restore(self, row: Mapping[str, Any]) -> None:
        """Continue from `to_snapshot`."""
        self._view = None
        self.done_epochs, self.run_seconds, self.start = row["done_epochs"], row["run_seconds"], row["start_seconds"]
        self.allocation = Allocation(row["workers"], row["ps"])
        self.can_train, self.pause_seconds = row["can_train"], row["pause_seconds"]
        self.checkpoint_epochs = row["checkpoint_epochs"]
        self._trained_since_checkpoint_seconds = row["trained_since_checkpoint_seconds"]


class SimulatedJobTable:
    """The jobs of one simulation: those that are still to come, are in the cluster (`present`), or have ended.

    Of the others there is no more than a row of the workload and two times, so memory does not grow with those that
    ended.

    Args:
        grids: true samples/s per job type, indexed [ps][workers].
    """

    def __init__(
        self, workload: Workload, environment: Environment, grids: Mapping[str, Sequence[Sequence[float]]]
    ) -> None:
        self._workload = workload
        self._environment = environment
        self._grids = grids
        # One object per demand class: dictionaries compare by identity first.
        self._demands: dict[Resources, Resources] = {}
        self._ended: dict[str, tuple[float, float]] = {}
        self._arrived = 0
        self.present: dict[str, SimulatedJob] = {}

    @property
    def arrivals_pending(self) -> bool:
        """Whether jobs are still to arrive."""
        return self._arrived < len(self._workload.jobs)

    @property
    def next_arrival_seconds(self) -> float:
        """When the next job is submitted; infinite after the last."""
        return self._workload.jobs[self._arrived].submit_time_seconds if self.arrivals_pending else math.inf

    @property
    def last_end_seconds(self) -> float:
        """When the last of the jobs that have ended did so; there must be one."""
        return max(end for _, end in self._ended.values())

    def admit(self, until: float) -> None:
        """Take in the jobs that are submitted up to and including this time."""
        while self.next_arrival_seconds <= until:
            spec = self._workload.jobs[self._arrived]
            self.present[spec.job_id] = self._simulated(spec)
            self._arrived += 1

    def drop_ended(self) -> None:
        """Keep no more than the times of jobs that have ended."""
        for job_id, job in [(job_id, job) for job_id, job in self.present.items() if job.end is not None]:
            assert job.start is not None  # noqa: S101  (it has ended, so it was started; narrows the types)
            assert job.end is not None  # noqa: S101
            self._ended[job_id] = (job.start, job.end)
            del self.present[job_id]

    def outcomes(self) -> list[JobOutcome]:
        """Submission, first start and end of every job of the workload, in order."""
        return [self._outcome(spec) for spec in self._workload.jobs]

    def _outcome(self, spec: WorkloadJob) -> JobOutcome:
        ended = self._ended.get(spec.job_id)
        if ended is not None:
            return JobOutcome(spec.job_id, spec.submit_time_seconds, *ended)
        job = self.present.get(spec.job_id)
        return JobOutcome(spec.job_id, spec.submit_time_seconds, None if job is None else job.start, None)

    def _simulated(self, spec: WorkloadJob) -> SimulatedJob:
        worker = self._demands.setdefault(spec.worker_demand, spec.worker_demand)
        ps = self._demands.setdefault(spec.ps_demand, spec.ps_demand)
        return SimulatedJob(spec, self._grids[spec.trains_as], self._environment, worker, ps)

    def to_snapshot(self) -> dict[str, Any]:
        """What has happened to the jobs, as JSON-able values."""
        return {
            "workload": self._workload.name,
            "jobs_in_workload": len(self._workload.jobs),
            "arrived": self._arrived,
            "ended": {job_id: list(times) for job_id, times in self._ended.items()},
            "present": [job.to_snapshot() for job in self.present.values()],
        }

    def check_snapshot(self, snapshot: Mapping[str, Any]) -> None:
        """Make sure that a snapshot is of this workload.

        Raises:
            BadInput: it is of another.
        """
        jobs = self._workload.jobs
        known = {*snapshot["ended"], *(row["job_id"] for row in snapshot["present"])}
        expected = {spec.job_id for spec in jobs[: snapshot["arrived"]]}
        if snapshot["jobs_in_workload"] != len(jobs) or known != expected:
            raise BadInput(
                f"the snapshot is of workload {snapshot['workload']!r} with {snapshot['jobs_in_workload']} jobs, not of"
                f" {self._workload.name!r} with {len(jobs)}: start again, or use the workload that it was taken of"
            )

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot that `check_snapshot` let pass."""
        self._arrived = snapshot["arrived"]
        self._ended = {job_id: (start, end) for job_id, (start, end) in snapshot["ended"].items()}
        specs = {spec.job_id: spec for spec in self._workload.jobs[: self._arrived]}
        self.present = {}
        for row in snapshot["present"]:
            job = self.present[row["job_id"]] = self._simulated(specs[row["job_id"]])
            job.restore(row)
