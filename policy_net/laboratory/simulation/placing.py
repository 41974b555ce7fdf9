"""Placing of a decision's tasks on the simulated nodes, and what that does to the jobs' speeds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from policy_net.domain import Allocation, CapacityMode, Decision, Node, Placement, PlacementEffect, Share
from policy_net.laboratory.simulation.admission import check_placement
from policy_net.laboratory.simulation.environment import Environment, PlacementStrategy
from policy_net.laboratory.simulation.simulated_job import SimulatedJob
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
        """What no node has room for, per job; nothing where the decision says itself where its tasks go.

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
            wanted = [
                (job_id, job.worker_demand, job.ps_demand, allocation[job_id])
                for job_id, job in present.items()
                if job_id in allocation
            ]
            build = PackPlan if self._environment.placement is PlacementStrategy.PACK else SpreadPlan
            plan = build(layout_of(nodes), wanted)
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
        key = (job.spec.job_type, shares_now)
        speed = self._known.get(key)
        if speed is None:
            assert self._effect is not None  # noqa: S101  (asked only if it matters; narrows the type)
            speed = self._known[key] = self._effect.relative_speed(job.spec.job_type, shares_now)
        return speed

    def on_nodes(self, node_ids: set[str]) -> dict[str, list[tuple[str, Share]]]:
        """The shares on each of these nodes, with their jobs."""
        found: dict[str, list[tuple[str, Share]]] = {}
        for job_id, shares in self.shares.items():
            for share in shares:
                if share.node_id in node_ids:
                    found.setdefault(share.node_id, []).append((job_id, share))
        return found
