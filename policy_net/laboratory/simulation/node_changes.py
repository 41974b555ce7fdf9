"""Nodes that come and go: failures and repairs drawn from a seed, and clusters that grow or shrink by plan.

A node's n-th time to failure and to repair are hashes of (seed, node, n), so where a simulation stands follows from its
clock alone. Deviation: DL2's cluster never changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from policy_net.domain import Node, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.noise import job_key, uniform
from policy_net.laboratory.simulation.environment import Environment, NodeChange


def resizing(
    nodes: int, capacity: Resources, steps: Iterable[tuple[float, int]], gpu_type: str = ""
) -> tuple[NodeChange, ...]:
    """The changes of a cluster of node-0, node-1, … that grows or shrinks to so many nodes at these times in seconds.

    Nodes that are added have this capacity and GPU type; the last ones go first.

    Raises:
        BadInput: a size is below 1, or two sizes are given for one time.
    """
    changes: list[NodeChange] = []
    previous = -math.inf
    for time_seconds, size in sorted(steps):
        if size < 1:
            raise BadInput(f"the cluster cannot have {size} nodes: use 1 or more")
        if time_seconds == previous:
            raise BadInput(f"two sizes are given for hour {time_seconds / 3600:g}: keep one of them")
        changes += [NodeChange(time_seconds, f"node-{n}", True, capacity, gpu_type) for n in range(nodes, size)]
        changes += [NodeChange(time_seconds, f"node-{n}", False) for n in range(nodes - 1, size - 1, -1)]
        nodes, previous = size, time_seconds
    return tuple(changes)


class NodeTimeline:
    """The nodes that are up, as the simulated clock goes on; it only goes forward.

    Attributes:
        nodes: those that are up now; the same object as long as nothing changes.
        next_change_seconds: when nodes next come or go; infinite if never.
        changed_at_seconds: when they last did.
        gpu_seconds_before: GPUs that were up, over the time from zero to then.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._changes = environment.node_changes
        self._next_planned = 0
        self._planned = {node.node_id: node for node in environment.node_list}
        self._down: set[str] = set()
        self._ended_lives: dict[str, int] = {}
        self._failures: list[tuple[float, str, int]] = []
        self._turns: dict[str, int] = {}
        if environment.node_mtbf_seconds:
            for node_id in self._planned:
                self._await_failure(node_id, 0.0)
        self.changed_at_seconds = self.gpu_seconds_before = 0.0
        self.nodes = environment.node_list
        self._gpus = sum(node.capacity.gpu for node in self.nodes)
        self.next_change_seconds = self._find_next()
        self.advance(0.0)

    @property
    def planned_changes_pending(self) -> bool:
        """Whether the cluster is still to change by plan, or a node that failed to come back."""
        return self._next_planned < len(self._changes) or bool(self._down)

    def advance(self, until: float) -> list[tuple[float, str]]:
        """Let everything happen up to and including a time; returns the nodes that were lost, and when."""
        lost: list[tuple[float, str]] = []
        while self.next_change_seconds <= until:
            now = self.next_change_seconds
            before = {node.node_id for node in self.nodes}
            self.gpu_seconds_before += self._gpus * (now - self.changed_at_seconds)
            self.changed_at_seconds = now
            while self._next_planned < len(self._changes) and self._changes[self._next_planned].time_seconds <= now:
                self._carry_out(self._changes[self._next_planned])
                self._next_planned += 1
            while self._failures and self._failures[0][0] <= now:
                self._fail_or_repair(*heapq.heappop(self._failures))
            self.nodes = tuple(node for node in self._planned.values() if node.node_id not in self._down)
            self._gpus = sum(node.capacity.gpu for node in self.nodes)
            lost += [(now, node_id) for node_id in sorted(before.difference(node.node_id for node in self.nodes))]
            self.next_change_seconds = self._find_next()
        return lost

    def available_gpu_seconds(self, until: float) -> float:
        """GPUs that were up, over the time from zero to `until`, which is at or after the last change so far."""
        return self.gpu_seconds_before + self._gpus * (until - self.changed_at_seconds)

    def _find_next(self) -> float:
        planned = (
            self._changes[self._next_planned].time_seconds if self._next_planned < len(self._changes) else math.inf
        )
        return min(planned, self._failures[0][0]) if self._failures else planned

    def _carry_out(self, change: NodeChange) -> None:
        node_id = change.node_id
        if not change.up:
            # What was still to happen to the node is void: its life is over.
            self._ended_lives[node_id] = self._ended_lives.get(node_id, 0) + 1
            self._planned.pop(node_id, None)
            self._down.discard(node_id)
            return
        known = next((node for node in self._environment.node_list if node.node_id == node_id), None)
        capacity = change.capacity or (known.capacity if known else self._environment.node_capacity)
        is_new = node_id not in self._planned
        self._planned[node_id] = Node(node_id, capacity, change.gpu_type or (known.gpu_type if known else ""))
        if is_new and self._environment.node_mtbf_seconds:
            self._await_failure(node_id, change.time_seconds)

    def _fail_or_repair(self, now: float, node_id: str, life: int) -> None:
        if life != self._ended_lives.get(node_id, 0):
            return
        if node_id in self._down:
            self._down.remove(node_id)
            self._await_failure(node_id, now)
        else:
            self._down.add(node_id)
            self._await(node_id, now, self._environment.node_repair_seconds)

    def _await_failure(self, node_id: str, now: float) -> None:
        self._await(node_id, now, self._environment.node_mtbf_seconds)

    def _await(self, node_id: str, now: float, mean_seconds: float) -> None:
        """Times to failure and to repair are exponentially distributed: neither knows how long it has waited."""
        turn = self._turns[node_id] = self._turns.get(node_id, -1) + 1
        wait = -mean_seconds * math.log(uniform(job_key(self._environment.seed, f"node {node_id}"), turn))
        heapq.heappush(self._failures, (now + wait, node_id, self._ended_lives.get(node_id, 0)))


def planned_node_sets(environment: Environment) -> Sequence[tuple[Node, ...]]:
    """The nodes of the cluster after every planned change, were none to fail; the first set is that of time zero."""
    sets = [environment.node_list]
    nodes = {node.node_id: node for node in environment.node_list}
    for index, change in enumerate(environment.node_changes):
        if change.up:
            capacity = change.capacity or environment.node_capacity
            nodes[change.node_id] = Node(change.node_id, capacity, change.gpu_type)
        else:
            nodes.pop(change.node_id, None)
        following = environment.node_changes[index + 1 : index + 2]
        if nodes and not (following and following[0].time_seconds == change.time_seconds):
            sets.append(tuple(nodes.values()))
    return sets
