"""Simulated cluster, step by step: show the state, take a decision, run on to the next decision.

Jobs arrive and end at fractional times. Under slot decisions an arrival waits for the next slot, and what a job frees
at its end stays granted until then; under event decisions it is free at once, though nobody is given it before the next
decision (`environment`). Nothing here draws random numbers or reads a clock: results are the same, bit for bit.
Source: DL2 §3 and §6.1 (slots, resource demands). Deviation: event decisions, pauses, and nodes that come and go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Node,
    Placement,
    PlacementEffect,
    Progress,
    Share,
    SpeedModel,
    Trigger,
)
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import decode_placement, encode_placement
from policy_net.laboratory.simulation.admission import check_decision, check_jobs_can_run, check_placement
from policy_net.laboratory.simulation.environment import (
    DecideOn,
    Environment,
    PlacementStrategy,
    decision_on_arrival,
    decision_on_nodes,
    next_decision,
)
from policy_net.laboratory.simulation.metrics import RunCounters
from policy_net.laboratory.simulation.node_changes import NodeTimeline
from policy_net.laboratory.simulation.simulated_job import SimulatedJob, SimulatedJobTable
from policy_net.laboratory.workloads.workload import Workload
from policy_net.placement.layout import layout_of
from policy_net.placement.pack import PackPlan
from policy_net.placement.spread import SpreadPlan

NOWHERE: Placement = MappingProxyType({})


class TaskPlacing:
    """The tasks of the latest decision on the nodes; with pooled capacity they lie nowhere.

    Args:
        effect: how much slower jobs train where their workers lie; None if that makes no difference.
    """

    def __init__(self, environment: Environment, effect: PlacementEffect | None) -> None:
        self._environment = environment
        self._effect = None if environment.capacity_mode is CapacityMode.POOLED else effect
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], float] = {}
        self._gpu_types: dict[str, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget where the tasks lie."""
        self._plan: SpreadPlan | PackPlan | None = None
        self._given: Placement | None = None

    @property
    def shares(self) -> Placement:
        """The nodes that hold tasks, per job."""
        if self._given is not None:
            return self._given
        return NOWHERE if self._plan is None else self._plan.shares

    @property
    def matters(self) -> bool:
        """Whether where the workers lie changes how fast they train."""
        return self._effect is not None

    def place(
        self, decision: Decision, present: Mapping[str, SimulatedJob], nodes: tuple[Node, ...]
    ) -> Mapping[str, Allocation]:
        """What no node has capacity for, per job; nothing where the decision says itself where its tasks go.

        Raises:
            InvalidAllocation: the placement that the decision brings is impossible; nothing has changed then.
        """
        if self._environment.capacity_mode is CapacityMode.POOLED:
            return {}
        if decision.placement is not None:
            check_placement(decision, present, nodes)
            self._plan, self._given = None, decision.placement
            unplaced: Mapping[str, Allocation] = {}
        else:
            allocation = decision.allocation
            requests = [
                (job_id, job.worker_demand, job.ps_demand, allocation[job_id])
                for job_id, job in present.items()
                if job_id in allocation
            ]
            build = PackPlan if self._environment.placement is PlacementStrategy.PACK else SpreadPlan
            plan = build(layout_of(nodes), requests)
            self._plan, self._given = plan, None
            unplaced = plan.unplaced
        if self._effect is not None:
            self._gpu_types = {node.node_id: node.gpu_type for node in nodes}
        return unplaced

    def restore(self, shares: Placement, nodes: tuple[Node, ...]) -> None:
        """Go on from where tasks lay."""
        self._plan, self._given = None, shares
        self._gpu_types = {node.node_id: node.gpu_type for node in nodes}

    def moved_by(self, decision: Decision) -> frozenset[str]:
        """Jobs whose tasks this decision moves without another number of them.

        Deviation: only where the decision says itself where its tasks go; what the cluster places moves for free.
        """
        if decision.placement is None or not self.matters:
            return frozenset()
        before = self.shares
        return frozenset(
            job_id
            for job_id, shares in decision.placement.items()
            if job_id in before and set(before[job_id]) != set(shares)
        )

    def places(self, job: SimulatedJob) -> tuple[tuple[str, int], ...]:
        """Of every node that holds workers of the job, its GPU type and how many; only if it `matters`."""
        shares = self.shares.get(job.spec.job_id, ())
        return tuple([(self._gpu_types[s.node_id], s.allocation.workers) for s in shares if s.allocation.workers])

    def relative_speed(self, job: SimulatedJob) -> float:
        """The job's speed where its workers lie, over its speed in its best place; only if it `matters`."""
        shares_now = self.places(job)
        key = (job.spec.trains_as, shares_now)
        speed = self._known.get(key)
        if speed is None:
            assert self._effect is not None  # noqa: S101  (asked only if it matters; narrows the type)
            speed = self._known[key] = self._effect.relative_speed(job.spec.trains_as, shares_now)
        return speed

    def on_nodes(self, node_ids: set[str]) -> dict[str, list[tuple[str, Share]]]:
        """The shares on each of these nodes, with their jobs."""
        found: dict[str, list[tuple[str, Share]]] = {}
        for job_id, shares in self.shares.items():
            for share in shares:
                if share.node_id in node_ids:
                    found.setdefault(share.node_id, []).append((job_id, share))
        return found


class Simulation:
    """One workload on one cluster, its `jobs` and `nodes`; drive it with `observe` and `apply` until `finished`.

    Args:
        placement_effect: how much slower jobs train where their workers lie; None, and in a pool: no difference.

    Raises:
        BadInput: a job can never run here, because it never fits or its speed is 0 at every size.
    """

    def __init__(
        self,
        workload: Workload,
        environment: Environment,
        speeds: SpeedModel,
        placement_effect: PlacementEffect | None = None,
    ) -> None:
        self.workload = workload
        self.environment = environment
        self.counters = RunCounters()
        grids = {name: speeds.grid(name).tolist() for name in {spec.trains_as for spec in workload.jobs}}
        check_jobs_can_run(workload, environment, grids)
        self.jobs = SimulatedJobTable(workload, environment, grids)
        self._placing = TaskPlacing(environment, placement_effect)
        self.nodes = NodeTimeline(environment)
        self._observed: ClusterState | None = None
        self._time, self._trigger = decision_on_arrival(environment, self.jobs.next_arrival_seconds, earliest=0.0)
        self.nodes.advance(self._time)
        self.jobs.admit(self._time)
        self._await_nodes()

    @property
    def finished(self) -> bool:
        """Whether every job has ended."""
        return not self.jobs.present and not self.jobs.arrivals_pending

    @property
    def time_seconds(self) -> float:
        """The time of the next decision; once finished, the end of the last job."""
        return self._time

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
                self.nodes.nodes,
                tuple([job.view() for job in self.jobs.present.values()]),
                self.environment.slot_seconds,
                self.environment.capacity_mode,
                self._shares_now() if self._placing.matters else None,
            )
        return self._observed, self._trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """Put a decision into force, run on to the next one, and return what jobs did that held or asked for tasks.

        Raises:
            InvalidAllocation: it names a job that is not there, breaks a cap, needs more than the pool has, or brings
                an impossible placement. Nothing has changed then.
        """
        check_decision(decision, self.jobs.present, self.environment, layout_of(self.nodes.nodes).total)
        moved = self._placing.moved_by(decision)
        granted = self._place(decision)
        counters, now, placing = self.counters, self._time, self._placing
        running: list[tuple[SimulatedJob, float]] = []
        completion = math.inf
        for job_id, job in self.jobs.present.items():
            allocation = granted.get(job_id, SUSPENDED)
            job.set_allocation(allocation, counters, moved=job_id in moved)
            if not job.can_train:
                if allocation.tasks:
                    counters.unusable_allocations += 1
                elif decision.of(job_id).tasks == 0:
                    continue
            speed = job.samples_per_second(counters.decisions)
            if speed and placing.matters:
                speed *= placing.relative_speed(job)
            running.append((job, speed))
            completion = min(completion, job.end_seconds(now, speed))
        until, self._trigger = next_decision(
            self.environment, now, completion, self.jobs.next_arrival_seconds, self.nodes.next_change_seconds
        )
        stops, losses, lost_gpu_seconds = self._change_nodes(until)
        ends_free = self.environment.decide_on is DecideOn.EVENT
        progress = []
        for job, speed in running:
            gpus = job.allocation.workers * job.worker_demand.gpu + job.allocation.ps * job.ps_demand.gpu
            stop = stops.get(job.spec.job_id, until) if stops else until
            places = placing.places(job) if placing.matters else ()
            progress.append(job.run(now, speed, stop, counters, places))
            if ends_free and job.end is not None:
                # It ended before it could lose anything.
                counters.gpu_seconds += gpus * (job.end - now) + lost_gpu_seconds.get(job.spec.job_id, 0.0)
            else:
                counters.gpu_seconds += gpus * (until - now)
        for job_id, lost in losses.items():
            if self.jobs.present[job_id].end is None:
                self.jobs.present[job_id].lose(lost, counters)
        counters.decisions += 1
        counters.allocated_until_seconds = until
        counters.available_gpu_seconds = self.nodes.available_gpu_seconds(until)
        self._observed = None
        self._move_to(until)
        return progress

    def placement(self) -> Placement:
        """Where the tasks of the latest decision were placed; empty before the first and with pooled capacity."""
        return self._placing.shares

    def _shares_now(self) -> Placement:
        """Where the tasks of the jobs lie that are still there, on nodes that are."""
        nodes = {node.node_id for node in self.nodes.nodes}
        found: dict[str, tuple[Share, ...]] = {}
        for job_id, shares in self._placing.shares.items():
            job = self.jobs.present.get(job_id)
            if job is not None and job.allocation.tasks:
                found[job_id] = tuple(share for share in shares if share.node_id in nodes)
        return found

    def _place(self, decision: Decision) -> Mapping[str, Allocation]:
        """What every job gets; what no node has capacity for is trimmed and counted."""
        unplaced = self._placing.place(decision, self.jobs.present, self.nodes.nodes)
        if not unplaced:
            return decision.allocation
        granted = dict(decision.allocation)
        for job_id, missing in unplaced.items():
            self.counters.trimmed_tasks += missing.tasks
            desired = granted[job_id]
            granted[job_id] = Allocation(desired.workers - missing.workers, desired.ps - missing.ps)
        return granted

    def _change_nodes(self, until: float) -> tuple[dict[str, float], dict[str, Allocation], dict[str, float]]:
        """Let nodes come and go up to a time.

        Returns:
            When jobs with tasks on lost nodes stop, what they lose, and the GPU-seconds that were taken off for it.
        """
        stops: dict[str, float] = {}
        losses: dict[str, Allocation] = {}
        lost_gpu_seconds: dict[str, float] = {}
        if self.nodes.next_change_seconds > until:
            return stops, losses, lost_gpu_seconds
        first_lost: dict[str, float] = {}
        for time_seconds, node_id in self.nodes.advance(until):
            first_lost.setdefault(node_id, time_seconds)
        on_nodes = self._placing.on_nodes(set(first_lost)) if first_lost else {}
        for node_id, shares in on_nodes.items():
            for job_id, share in shares:
                job, tasks = self.jobs.present[job_id], share.allocation
                stops[job_id] = min(stops.get(job_id, math.inf), first_lost[node_id])
                before = losses.get(job_id, SUSPENDED)
                losses[job_id] = Allocation(before.workers + tasks.workers, before.ps + tasks.ps)
                gpus = tasks.workers * job.worker_demand.gpu + tasks.ps * job.ps_demand.gpu
                lost = gpus * (until - first_lost[node_id])
                lost_gpu_seconds[job_id] = lost_gpu_seconds.get(job_id, 0.0) + lost
                self.counters.gpu_seconds -= lost
        return stops, losses, lost_gpu_seconds

    def _move_to(self, until: float) -> None:
        """Go to the next decision point: drop ended jobs, admit arrived ones, skip time without any job or node."""
        earliest = self._time + self.environment.debounce_seconds
        self.jobs.drop_ended()
        self._time = until
        self.jobs.admit(until)
        if not self.jobs.present:
            if not self.jobs.arrivals_pending:
                self._time = self.jobs.last_end_seconds
                return
            next_arrival = self.jobs.next_arrival_seconds
            self._time, self._trigger = decision_on_arrival(self.environment, next_arrival, earliest)
            self.nodes.advance(self._time)
            self.jobs.admit(self._time)
        self._await_nodes()

    def _await_nodes(self) -> None:
        """While no node is up there is nothing to decide: every job waits for the first that comes."""
        while not self.nodes.nodes:
            self._time, self._trigger = decision_on_nodes(self.environment, self.nodes.next_change_seconds)
            self.nodes.advance(self._time)
            self.jobs.admit(self._time)
            for job in self.jobs.present.values():
                job.set_allocation(SUSPENDED, self.counters)

    def snapshot(self) -> dict[str, Any]:
        """Everything that has happened so far, as JSON-able values; `restore` continues exactly from it."""
        snapshot = {
            "environment": self.environment.as_json,
            "time_seconds": self._time,
            "trigger": self._trigger.value,
            "counters": self.counters.to_json(),
            "jobs": self.jobs.to_snapshot(),
        }
        if self._placing.matters:
            snapshot["placement"] = encode_placement(self._shares_now())
        return snapshot

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same workload, environment and speeds.

        Raises:
            BadInput: the snapshot is of another workload or environment; nothing has changed then.
        """
        self.jobs.check_snapshot(snapshot["jobs"])
        if snapshot["environment"] != self.environment.as_json:
            raise BadInput(
                f"the snapshot was taken in {snapshot['environment']}, this is {self.environment.as_json}:"
                " start again, or use the same environment"
            )
        self.jobs.restore(snapshot["jobs"])
        self._time = snapshot["time_seconds"]
        self._trigger = Trigger(snapshot["trigger"])
        self.counters = RunCounters(**snapshot["counters"])
        self.nodes = NodeTimeline(self.environment)
        self.nodes.advance(self._time)
        self._placing.clear()
        if self._placing.matters and "placement" in snapshot:
            self._placing.restore(decode_placement(snapshot["placement"]), self.nodes.nodes)
        self._observed = None
