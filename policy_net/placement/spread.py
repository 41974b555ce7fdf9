"""Place tasks on the least loaded nodes, GPU workers first.

The order matters: tasks are placed class by class, those that need most GPUs first, then most CPU. Placing in grant
order, or CPU tasks first, strands GPUs beside full CPUs and costs a fifth to a third of the jobs' completion time when
the cluster is small; in this order nothing is lost against pooled capacity for DL2's demands.
Within a class, the next task goes to the node with the smallest used share of the resource that the class is placed
by (GPU if it needs one, else CPU); equal shares go to the node that comes first. The whole class is placed in one
sort: a node's keys rise with every task, so the greedy order is the order of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, ClusterState, Node, Resources, Share

IntArray = NDArray[np.int64]


def placing_order(demand: Resources) -> tuple[int, int]:
    """Sort key of a demand class: GPU-heavy first, then CPU-heavy."""
    return (-demand.gpu, -demand.cpu_milli)


class NodeLayout:
    """The nodes' capacities as arrays; build it once per set of nodes with `layout_of`."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.cpu_milli: IntArray = np.array([node.capacity.cpu_milli for node in nodes], dtype=np.int64)
        self.gpu: IntArray = np.array([node.capacity.gpu for node in nodes], dtype=np.int64)
        self.total = Resources(int(self.cpu_milli.sum()), int(self.gpu.sum()))

    @cached_property
    def shapes(self) -> tuple[tuple[Resources, int], ...]:
        """The distinct node sizes and how many nodes have each."""
        counts: dict[Resources, int] = {}
        for node in self.nodes:
            counts[node.capacity] = counts.get(node.capacity, 0) + 1
        return tuple(counts.items())


_latest: list[NodeLayout] = []


def layout_of(nodes: tuple[Node, ...]) -> NodeLayout:
    """The layout of these nodes; remembers the latest one, as a cluster's nodes rarely change between decisions."""
    for layout in _latest:
        if layout.nodes is nodes:
            return layout
    layout = NodeLayout(nodes)
    _latest[:] = [layout]
    return layout


def fill(layout: NodeLayout, classes: Sequence[tuple[Resources, int]]) -> list[IntArray]:
    """Place `count` tasks of each class, in the order given; returns node indices per class, in order of placing.

    A class whose tasks do not all fit gets a shorter array; the others are still placed.
    """
    used_cpu = np.zeros_like(layout.cpu_milli)
    used_gpu = np.zeros_like(layout.gpu)
    placed = []
    for demand, count in classes:
        chosen = _fill_class(layout, used_cpu, used_gpu, demand, count)
        tasks = np.bincount(chosen, minlength=len(layout.nodes))
        used_cpu += tasks * demand.cpu_milli
        used_gpu += tasks * demand.gpu
        placed.append(chosen)
    return placed


def _fill_class(layout: NodeLayout, used_cpu: IntArray, used_gpu: IntArray, demand: Resources, count: int) -> IntArray:
    """Node indices of up to `count` tasks of one class, least loaded first."""
    room = np.full(len(layout.nodes), count, dtype=np.int64)
    if demand.cpu_milli:
        np.minimum(room, (layout.cpu_milli - used_cpu) // demand.cpu_milli, out=room)
    if demand.gpu:
        np.minimum(room, (layout.gpu - used_gpu) // demand.gpu, out=room)
    levels = int(room.max(initial=0))
    if levels == 0:
        return np.zeros(0, dtype=np.int64)
    if demand.gpu:
        used, step, whole = used_gpu, demand.gpu, layout.gpu
    else:
        used, step, whole = used_cpu, demand.cpu_milli, layout.cpu_milli
    level = np.arange(levels)
    # One row a node, one column a task on it: the node's load before that task is placed there.
    loads = (used[:, None] + step * level) / np.maximum(whole, 1)[:, None]
    loads[level >= room[:, None]] = np.inf
    order = np.argsort(loads, axis=None, kind="stable")[: min(count, int(room.sum()))]
    return order // levels


@dataclass(frozen=True)
class SpreadPlan:
    """Where the tasks of an allocation go, kept as arrays; `shares` turns it into objects.

    Attributes:
        pieces: (job, whether workers, the nodes of its tasks), job by job within each demand class.
        unplaced: what did not fit, per job; empty if everything was placed.
    """

    layout: NodeLayout
    pieces: tuple[tuple[str, bool, IntArray], ...]
    unplaced: Mapping[str, Allocation]

    def shares(self) -> dict[str, tuple[Share, ...]]:
        """The placement per job that got at least one task, nodes in their order."""
        tasks: dict[str, dict[int, list[int]]] = {}
        for job_id, is_worker, chosen in self.pieces:
            per_node = tasks.setdefault(job_id, {})
            for node in chosen.tolist():
                per_node.setdefault(node, [0, 0])[0 if is_worker else 1] += 1
        nodes = self.layout.nodes
        return {
            job_id: tuple(
                Share(nodes[index].node_id, Allocation(workers, ps))
                for index, (workers, ps) in sorted(per_node.items())
            )
            for job_id, per_node in tasks.items()
            if per_node
        }


def plan_spread(layout: NodeLayout, wanted: Iterable[tuple[str, Resources, Resources, Allocation]]) -> SpreadPlan:
    """Place (job, worker demand, PS demand, allocation) rows; within a class, earlier rows are served first."""
    requests: dict[Resources, list[tuple[str, bool, int]]] = {}
    for job_id, worker_demand, ps_demand, allocation in wanted:
        if allocation.workers:
            requests.setdefault(worker_demand, []).append((job_id, True, allocation.workers))
        if allocation.ps:
            requests.setdefault(ps_demand, []).append((job_id, False, allocation.ps))
    classes = sorted(requests, key=placing_order)
    counts = [(demand, sum(count for _, _, count in requests[demand])) for demand in classes]
    pieces: list[tuple[str, bool, IntArray]] = []
    missing: dict[str, list[int]] = {}
    for demand, chosen in zip(classes, fill(layout, counts), strict=True):
        start = 0
        for job_id, is_worker, count in requests[demand]:
            piece = chosen[start : start + count]
            start += count
            pieces.append((job_id, is_worker, piece))
            if len(piece) < count:
                missing.setdefault(job_id, [0, 0])[0 if is_worker else 1] += count - len(piece)
    unplaced = {job_id: Allocation(workers, ps) for job_id, (workers, ps) in missing.items()}
    return SpreadPlan(layout, tuple(pieces), unplaced)


def place_spread(
    state: ClusterState, allocation: Mapping[str, Allocation]
) -> tuple[dict[str, tuple[Share, ...]], dict[str, Allocation]]:
    """Place an allocation on the state's nodes.

    Returns:
        The placement, and what could not be placed per job (only jobs that lack something). When capacity runs out,
        jobs that arrived later are cut first.
    """
    plan = plan_spread(
        layout_of(state.nodes),
        (
            (job.job_id, job.worker_demand, job.ps_demand, allocation[job.job_id])
            for job in state.jobs
            if job.job_id in allocation
        ),
    )
    return plan.shares(), dict(plan.unplaced)
