"""The simulated cluster, step by step: show the state, take a decision, run on to the next decision.

Jobs arrive and end at fractional times. Under slot decisions an arrival waits for the next slot, and what a job frees
at its end stays idle until then. Under event decisions the next decision comes with the next arrival or completion,
but not before the debounce is over, or with a tick when nothing happens for a slot. Nothing here draws random numbers
or reads a clock: the same workload, environment and decisions give the same result, bit for bit.
Source: DL2 §3 and §6.1 (slots, resource demands); resizing is free here. Deviation: event decisions are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    Placement,
    Progress,
    Resources,
    SpeedModel,
    Trigger,
)
from policy_net.errors import BadInput
from policy_net.placement.spread import SpreadPlan, layout_of, plan_spread
from policy_net.simulation.admission import check_decision, check_jobs_can_run, check_placement
from policy_net.simulation.environment import DecideOn, Environment
from policy_net.simulation.metrics import JobOutcome, RunCounters
from policy_net.simulation.noise import job_key, noise_factor
from policy_net.simulation.workload import JobSpec, Workload

ROUNDING = 1e-9
"""A job whose last work would end this share of an interval after it ends with the interval: sums of floats."""

OVERRUN_SHARE = 0.01
"""Share of the declared epochs that a job shows as remaining once it has outrun its declaration."""


class SimulatedJob:
    """A job's truth and how far it has come; mutable, one per job of the workload."""

    __slots__ = ("allocation", "done_epochs", "end", "key", "ps_demand", "run_seconds", "spec", "speed", "start",
                 "worker_demand")  # fmt: skip

    def __init__(
        self, spec: JobSpec, speed: list[list[float]], key: int, worker_demand: Resources, ps_demand: Resources
    ) -> None:
        self.spec = spec
        self.speed = speed
        self.key = key
        self.worker_demand = worker_demand
        self.ps_demand = ps_demand
        self.done_epochs = 0.0
        self.run_seconds = 0.0
        self.start: float | None = None
        self.end: float | None = None
        self.allocation = SUSPENDED

    def shown_remaining(self) -> float:
        """What schedulers believe is left: above zero as long as the job is unfinished."""
        spec = self.spec
        if spec.declared_epochs is None:
            return spec.total_epochs - self.done_epochs
        return max(spec.declared_epochs - self.done_epochs, OVERRUN_SHARE * spec.declared_epochs)

    def view(self) -> Job:
        """The job as schedulers see it."""
        spec = self.spec
        # By position: this is built for every job at every decision, and keywords cost half as much again.
        return Job(
            spec.job_id, spec.job_type, spec.submit_time_seconds, self.worker_demand, self.ps_demand,
            spec.samples_per_epoch, spec.shown_epochs, self.shown_remaining(), spec.requested,
            spec.max_workers, spec.max_ps, self.run_seconds, self.allocation,
        )  # fmt: skip


class Simulation:
    """One workload on one cluster; drive it with `observe` and `apply` until `finished`.

    Raises:
        BadInput: a job can never run here, because it never fits or its speed is 0 at every size.
    """

    def __init__(self, workload: Workload, environment: Environment, speeds: SpeedModel) -> None:
        self.workload = workload
        self.environment = environment
        self.counters = RunCounters()
        self._layout = layout_of(environment.node_list)
        grids = {spec.job_type: speeds.grid(spec.job_type).tolist() for spec in workload.jobs}
        check_jobs_can_run(workload, environment, grids)
        # One object per demand class: equal objects are then found by identity, which is what dictionaries try first.
        demands: dict[Resources, Resources] = {}
        self._jobs = [
            SimulatedJob(
                spec,
                grids[spec.job_type],
                job_key(environment.seed, spec.job_id),
                demands.setdefault(spec.worker_demand, spec.worker_demand),
                demands.setdefault(spec.ps_demand, spec.ps_demand),
            )
            for spec in workload.jobs
        ]
        self._present: dict[str, SimulatedJob] = {}
        self._arrived = 0
        self._time = 0.0
        self._trigger = Trigger.SLOT
        self._plan: SpreadPlan | None = None
        self._given_placement: Placement | None = None
        self._observed: ClusterState | None = None
        self._skip_idle_time(earliest=0.0)

    @property
    def finished(self) -> bool:
        """Whether every job has ended."""
        return not self._present and self._arrived == len(self._jobs)

    @property
    def time_seconds(self) -> float:
        """The time of the next decision; once finished, the end of the last job."""
        return self._time

    @property
    def arrivals_pending(self) -> bool:
        """Whether jobs are still to arrive."""
        return self._arrived < len(self._jobs)

    def observe(self) -> tuple[ClusterState, Trigger]:
        """The state at the next decision, and why it is taken.

        Raises:
            RuntimeError: the simulation is finished.
        """
        if self.finished:
            raise RuntimeError("the simulation is finished: there is no further decision")
        if self._observed is None:
            environment = self.environment
            self._observed = ClusterState(
                self._time,
                environment.node_list,
                tuple([job.view() for job in self._present.values()]),
                environment.slot_seconds,
                environment.capacity_mode,
            )
        return self._observed, self._trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """Put a decision into force and run on to the next one.

        Returns:
            What every job did that held tasks or asked for some.

        Raises:
            InvalidAllocation: it names a job that is not there, breaks a cap, or needs more than the cluster has
                (pooled), or its own placement is impossible. Nothing has changed then.
        """
        check_decision(decision, self._present, self.environment, self._layout.total)
        held = self._place(decision)
        asked = decision.allocation
        factors_sd = self.environment.speed_noise
        runs: list[tuple[SimulatedJob, float, float]] = []  # job, samples/s, seconds until it would be done
        for job_id, job in self._present.items():
            allocation = job.allocation = held.get(job_id, SUSPENDED)
            if allocation.tasks == 0:
                if asked.get(job_id, SUSPENDED).tasks:
                    runs.append((job, 0.0, math.inf))
                continue
            if allocation.workers == 0 or allocation.ps == 0:
                self.counters.one_sided_allocations += 1
            speed = job.speed[allocation.ps][allocation.workers]
            if speed and factors_sd:
                speed *= noise_factor(job.key, self.counters.decisions, factors_sd)
            left_samples = (job.spec.total_epochs - job.done_epochs) * job.spec.samples_per_epoch
            runs.append((job, speed, left_samples / speed if speed else math.inf))
        until = self._next_decision_time([seconds for _, _, seconds in runs])
        progress = [self._run(job, speed, needed, until - self._time) for job, speed, needed in runs]
        self.counters.decisions += 1
        self._observed = None
        self._admit_or_finish(until)
        return progress

    def placement(self) -> Placement:
        """Where the tasks of the latest decision were placed; empty before the first and with pooled capacity."""
        if self._given_placement is not None:
            return self._given_placement
        return {} if self._plan is None else self._plan.shares()

    def outcomes(self) -> list[JobOutcome]:
        """Submission, first start and end of every job of the workload, in order."""
        return [JobOutcome(job.spec.job_id, job.spec.submit_time_seconds, job.start, job.end) for job in self._jobs]

    def _place(self, decision: Decision) -> Mapping[str, Allocation]:
        """What every job really gets; what no node has room for is trimmed and counted."""
        allocation = decision.allocation
        self._plan, self._given_placement = None, None
        if self.environment.capacity_mode is CapacityMode.POOLED:
            return allocation
        if decision.placement is not None:
            check_placement(decision, self._present, self.environment)
            self._given_placement = decision.placement
            return allocation
        present = self._present
        plan = plan_spread(
            self._layout,
            [
                (job_id, job.worker_demand, job.ps_demand, allocation[job_id])
                for job_id, job in present.items()
                if job_id in allocation
            ],
        )
        self._plan = plan
        if not plan.unplaced:
            return allocation
        held = dict(allocation)
        for job_id, missing in plan.unplaced.items():
            self.counters.trimmed_tasks += missing.tasks
            wanted = held[job_id]
            held[job_id] = Allocation(wanted.workers - missing.workers, wanted.ps - missing.ps)
        return held

    def _run(self, job: SimulatedJob, speed: float, needed_seconds: float, interval_seconds: float) -> Progress:
        """Let one job run for an interval, or to its end."""
        spec, allocation = job.spec, job.allocation
        shown_remaining = job.shown_remaining()
        finished = needed_seconds <= interval_seconds * (1.0 + ROUNDING)
        if finished:
            seconds = min(needed_seconds, interval_seconds)
            epochs = spec.total_epochs - job.done_epochs
            job.done_epochs = spec.total_epochs
            job.end = self._time + seconds
        else:
            seconds = interval_seconds
            epochs = speed * seconds / spec.samples_per_epoch
            job.done_epochs += epochs
        if allocation.workers and allocation.ps:
            job.run_seconds += seconds
            if job.start is None:
                job.start = self._time
        self.counters.gpu_seconds += seconds * (
            allocation.workers * job.worker_demand.gpu + allocation.ps * job.ps_demand.gpu
        )
        return Progress(
            spec.job_id, spec.job_type, allocation, seconds, epochs * spec.samples_per_epoch, epochs,
            shown_remaining, finished,
        )  # fmt: skip

    def _next_decision_time(self, needed_seconds: list[float]) -> float:
        """When the next decision would be taken if any job is there by then; also sets why."""
        environment = self.environment
        tick = self._slot_start(self._time, after=True) if self._slotted else self._time + environment.slot_seconds
        self._trigger = Trigger.SLOT
        if self._slotted:
            return tick
        completion = self._time + min(needed_seconds, default=math.inf)
        arrival = self._next_arrival_time()
        event = max(min(completion, arrival), self._time + environment.debounce_seconds)
        if event > tick:
            return tick
        self._trigger = Trigger.ARRIVAL if arrival <= completion else Trigger.COMPLETION
        return event

    def _admit_or_finish(self, until: float) -> None:
        """Move to the next decision point: drop ended jobs, admit arrived ones, skip time without any job."""
        before = self._time
        self._present = {job_id: job for job_id, job in self._present.items() if job.end is None}
        self._time = until
        self._admit()
        if self._present:
            return
        if self.arrivals_pending:
            self._skip_idle_time(earliest=before + self.environment.debounce_seconds)
        else:
            self._time = max(job.end for job in self._jobs if job.end is not None)

    def _skip_idle_time(self, earliest: float) -> None:
        """Go to the decision that the next arrival brings."""
        arrival = self._next_arrival_time()
        if self._slotted:
            self._time = self._slot_start(arrival)
            self._trigger = Trigger.SLOT
        else:
            self._time = max(arrival, earliest)
            self._trigger = Trigger.ARRIVAL
        self._admit()

    def _admit(self) -> None:
        for job in self._waiting():
            if job.spec.submit_time_seconds > self._time:
                return
            self._present[job.spec.job_id] = job
            self._arrived += 1

    def _waiting(self) -> Iterator[SimulatedJob]:
        while self._arrived < len(self._jobs):
            yield self._jobs[self._arrived]

    @property
    def _slotted(self) -> bool:
        return self.environment.decide_on is DecideOn.SLOT

    def _next_arrival_time(self) -> float:
        return self._jobs[self._arrived].spec.submit_time_seconds if self.arrivals_pending else math.inf

    def _slot_start(self, time: float, *, after: bool = False) -> float:
        """The first slot start at or after a time, or strictly after it; always the slot's number times its length."""
        length = self.environment.slot_seconds
        number = math.floor(time / length) - 1
        while number * length < time or (after and number * length <= time):
            number += 1
        return number * length

    def snapshot(self) -> dict[str, Any]:
        """Everything that has happened so far, as JSON-able values; `restore` continues exactly from it."""
        return {
            "workload": self.workload.name,
            "jobs_in_workload": len(self._jobs),
            "time_seconds": self._time,
            "trigger": self._trigger.value,
            "counters": self.counters.to_json(),
            "arrived": [
                {
                    "job_id": job.spec.job_id,
                    "done_epochs": job.done_epochs,
                    "run_seconds": job.run_seconds,
                    "start_seconds": job.start,
                    "end_seconds": job.end,
                    "workers": job.allocation.workers,
                    "ps": job.allocation.ps,
                }
                for job in self._jobs[: self._arrived]
            ],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same workload, environment and speeds.

        Raises:
            BadInput: the snapshot is of another workload; nothing has changed then.
        """
        arrived = snapshot["arrived"]
        expected = [job.spec.job_id for job in self._jobs[: len(arrived)]]
        if snapshot["jobs_in_workload"] != len(self._jobs) or [row["job_id"] for row in arrived] != expected:
            raise BadInput(
                f"the snapshot is of workload {snapshot['workload']!r} with {snapshot['jobs_in_workload']} jobs, not of"
                f" {self.workload.name!r} with {len(self._jobs)}: start again, or use the workload that it was taken of"
            )
        for job, row in zip(self._jobs, arrived, strict=False):
            job.done_epochs, job.run_seconds = row["done_epochs"], row["run_seconds"]
            job.start, job.end = row["start_seconds"], row["end_seconds"]
            job.allocation = Allocation(row["workers"], row["ps"])
        for job in self._jobs[len(arrived) :]:
            job.done_epochs, job.run_seconds, job.start, job.end = 0.0, 0.0, None, None
            job.allocation = SUSPENDED
        self._arrived = len(arrived)
        self._present = {job.spec.job_id: job for job in self._jobs[: len(arrived)] if job.end is None}
        self._time = snapshot["time_seconds"]
        self._trigger = Trigger(snapshot["trigger"])
        self.counters = RunCounters(**snapshot["counters"])
        self._plan, self._given_placement, self._observed = None, None, None
