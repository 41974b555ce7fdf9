"""The simulated cluster, step by step: show the state, take a decision, run on to the next decision.

Jobs arrive and end at fractional times. Under slot decisions an arrival waits for the next slot, and what a job frees
at its end stays idle until then; under event decisions the same holds until the next decision (`timing`). Nothing
here draws random numbers or reads a clock: the same workload, environment and decisions give the same result, bit for
bit.
Source: DL2 §3 and §6.1 (slots, resource demands). Deviation: resizing takes no time; event decisions are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Placement,
    Progress,
    Resources,
    SpeedModel,
    Trigger,
)
from policy_net.errors import BadInput
from policy_net.placement.layout import layout_of
from policy_net.placement.spread import SpreadPlan
from policy_net.simulation.admission import check_decision, check_jobs_can_run, check_placement
from policy_net.simulation.environment import Environment
from policy_net.simulation.metrics import JobOutcome, RunCounters
from policy_net.simulation.simulated_job import SimulatedJob
from policy_net.simulation.timing import decision_on_arrival, next_decision
from policy_net.simulation.workload import Workload


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
        grids = {job_type: speeds.grid(job_type).tolist() for job_type in {spec.job_type for spec in workload.jobs}}
        check_jobs_can_run(workload, environment, grids)
        # One object per demand class: dictionaries compare by identity first.
        demands: dict[Resources, Resources] = {}
        self._jobs = [
            SimulatedJob(
                spec,
                grids[spec.job_type],
                environment.seed,
                demands.setdefault(spec.worker_demand, spec.worker_demand),
                demands.setdefault(spec.ps_demand, spec.ps_demand),
            )
            for spec in workload.jobs
        ]
        self._present: dict[str, SimulatedJob] = {}
        self._arrived = 0
        self._plan: SpreadPlan | None = None
        self._given_placement: Placement | None = None
        self._observed: ClusterState | None = None
        self._time, self._trigger = decision_on_arrival(environment, self._next_arrival(), earliest=0.0)
        self._admit()

    @property
    def finished(self) -> bool:
        """Whether every job has ended."""
        return not self._present and not self.arrivals_pending

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
            self._observed = ClusterState(
                self._time,
                self.environment.node_list,
                tuple([job.view() for job in self._present.values()]),
                self.environment.slot_seconds,
                self.environment.capacity_mode,
            )
        return self._observed, self._trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """Put a decision into force and run on to the next one.

        Returns:
            What every job did that held tasks or asked for some.

        Raises:
            InvalidAllocation: it names a job that is not there, breaks a cap, or needs more than the cluster has
                (pooled), or the placement that it brings is impossible. Nothing has changed then.
        """
        check_decision(decision, self._present, self.environment, self._layout.total)
        held = self._place(decision)
        counters, now = self.counters, self._time
        running: list[tuple[SimulatedJob, float]] = []
        completion = math.inf
        for job_id, job in self._present.items():
            allocation = job.allocation = held.get(job_id, SUSPENDED)
            if allocation.tasks == 0 and decision.of(job_id).tasks == 0:
                continue
            if (allocation.workers == 0) != (allocation.ps == 0):
                counters.one_sided_allocations += 1
            speed = job.samples_per_second(counters.decisions, self.environment.speed_noise)
            running.append((job, speed))
            completion = min(completion, now + job.seconds_to_end(speed))
        until, self._trigger = next_decision(self.environment, now, completion, self._next_arrival())
        progress = []
        for job, speed in running:
            gpus = job.allocation.workers * job.worker_demand.gpu + job.allocation.ps * job.ps_demand.gpu
            counters.gpu_seconds += gpus * (until - now)
            progress.append(job.run(now, speed, until))
        counters.decisions += 1
        counters.allocated_until_seconds = until
        self._observed = None
        self._move_to(until)
        return progress

    def placement(self) -> Placement:
        """Where the tasks of the latest decision were placed; empty before the first and with pooled capacity."""
        if self._given_placement is not None:
            return self._given_placement
        return {} if self._plan is None else self._plan.shares

    def outcomes(self) -> list[JobOutcome]:
        """Submission, first start and end of every job of the workload, in order."""
        return [JobOutcome(job.spec.job_id, job.spec.submit_time_seconds, job.start, job.end) for job in self._jobs]

    def _place(self, decision: Decision) -> Mapping[str, Allocation]:
        """What every job really gets; what no node has room for is trimmed and counted."""
        allocation = decision.allocation
        if self.environment.capacity_mode is CapacityMode.POOLED:
            return allocation
        if decision.placement is not None:
            check_placement(decision, self._present, self.environment)
            self._plan, self._given_placement = None, decision.placement
            return allocation
        wanted = [
            (job_id, job.worker_demand, job.ps_demand, allocation[job_id])
            for job_id, job in self._present.items()
            if job_id in allocation
        ]
        plan = SpreadPlan(self._layout, wanted)
        self._plan, self._given_placement = plan, None
        if not plan.unplaced:
            return allocation
        held = dict(allocation)
        for job_id, missing in plan.unplaced.items():
            self.counters.trimmed_tasks += missing.tasks
            asked = held[job_id]
            held[job_id] = Allocation(asked.workers - missing.workers, asked.ps - missing.ps)
        return held

    def _move_to(self, until: float) -> None:
        """Go to the next decision point: drop ended jobs, admit arrived ones, skip time without any job."""
        earliest = self._time + self.environment.debounce_seconds
        self._present = {job_id: job for job_id, job in self._present.items() if job.end is None}
        self._time = until
        self._admit()
        if self._present:
            return
        if self.arrivals_pending:
            self._time, self._trigger = decision_on_arrival(self.environment, self._next_arrival(), earliest)
            self._admit()
        else:
            self._time = max(job.end for job in self._jobs if job.end is not None)

    def _admit(self) -> None:
        while self._next_arrival() <= self._time:
            job = self._jobs[self._arrived]
            self._present[job.spec.job_id] = job
            self._arrived += 1

    def _next_arrival(self) -> float:
        return self._jobs[self._arrived].spec.submit_time_seconds if self.arrivals_pending else math.inf

    def snapshot(self) -> dict[str, Any]:
        """Everything that has happened so far, as JSON-able values; `restore` continues exactly from it."""
        return {
            "workload": self.workload.name,
            "jobs_in_workload": len(self._jobs),
            "environment": asdict(self.environment),
            "time_seconds": self._time,
            "trigger": self._trigger.value,
            "counters": self.counters.to_json(),
            "arrived": [job.to_snapshot() for job in self._jobs[: self._arrived]],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same workload, environment and speeds.

        Raises:
            BadInput: the snapshot is of another workload or environment; nothing has changed then.
        """
        rows = snapshot["arrived"]
        expected = [job.spec.job_id for job in self._jobs[: len(rows)]]
        if snapshot["jobs_in_workload"] != len(self._jobs) or [row["job_id"] for row in rows] != expected:
            raise BadInput(
                f"the snapshot is of workload {snapshot['workload']!r} with {snapshot['jobs_in_workload']} jobs, not of"
                f" {self.workload.name!r} with {len(self._jobs)}: start again, or use the workload that it was taken of"
            )
        if snapshot["environment"] != asdict(self.environment):
            raise BadInput(
                f"the snapshot was taken in {snapshot['environment']}, this is {asdict(self.environment)}:"
                " start again, or use the same environment"
            )
        self._arrived = len(rows)
        for job in self._jobs:
            job.reset()
        for job, row in zip(self._jobs, rows, strict=False):  # jobs yet to arrive have no row
            job.restore(row)
        self._present = {job.spec.job_id: job for job in self._jobs[: self._arrived] if job.end is None}
        self._time = snapshot["time_seconds"]
        self._trigger = Trigger(snapshot["trigger"])
        self.counters = RunCounters(**snapshot["counters"])
        self._plan, self._given_placement, self._observed = None, None, None
