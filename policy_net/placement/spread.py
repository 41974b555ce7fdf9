"""Spreading: tasks on the least loaded nodes, GPU workers first.

The order matters: tasks are placed class by class, those that need most GPUs first, then most CPU. Placing in grant
order, or CPU tasks first, strands GPUs beside full CPUs and costs a fifth to a third of the jobs' completion time when
the cluster is small; in this order nothing is lost against pooled capacity for DL2's demands.
Within a class, the next task goes to the node with the smallest used share of the resource that the class is placed
by (GPU if it needs one, else CPU); equal shares go to the node that comes first. The whole class is placed in one
sort: a node's keys rise with every task, so the greedy order is the order of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from policy_net.domain import Allocation, Resources, Share
from policy_net.placement.layout import IntArray, NodeLayout, VolumeBound, placing_order


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
    free_capacity = np.full(len(layout.nodes), count, dtype=np.int64)
    if demand.cpu_milli:
        np.minimum(free_capacity, (layout.cpu_milli - used_cpu) // demand.cpu_milli, out=free_capacity)
    if demand.gpu:
        np.minimum(free_capacity, (layout.gpu - used_gpu) // demand.gpu, out=free_capacity)
    levels = int(free_capacity.max(initial=0))
    if levels == 0:
        return np.zeros(0, dtype=np.int64)
    if demand.gpu:
        used, step, whole = used_gpu, demand.gpu, layout.gpu
    else:
        used, step, whole = used_cpu, demand.cpu_milli, layout.cpu_milli
    level = np.arange(levels)
    # One row a node, one column a task on it: the node's load before that task is placed there.
    loads = (used[:, None] + step * level) / np.maximum(whole, 1)[:, None]
    loads[level >= free_capacity[:, None]] = np.inf
    order = np.argsort(loads, axis=None, kind="stable")[: min(count, int(free_capacity.sum()))]
    return order // levels


TaskRequest = tuple[str, Resources, Resources, Allocation]
"""A job, its worker's and its PS's demand, and what it should get."""


class SpreadPlan:
    """Where the tasks of an allocation go; within a demand class, earlier jobs are served first.

    Most allocations can be shown to fit by their volume alone, so nodes are chosen only when somebody asks for them.
    """

    def __init__(self, layout: NodeLayout, requests: Sequence[TaskRequest]) -> None:
        self._layout = layout
        self._requests = requests

    @cached_property
    def unplaced(self) -> Mapping[str, Allocation]:
        """What fits into no node, per job; empty if everything can be placed."""
        counts: dict[Resources, int] = {}
        for _, worker_demand, ps_demand, allocation in self._requests:
            counts[worker_demand] = counts.get(worker_demand, 0) + allocation.workers
            counts[ps_demand] = counts.get(ps_demand, 0) + allocation.ps
        bound = VolumeBound(self._layout, tuple(counts))
        for demand, count in counts.items():
            bound.add(demand, count)
        if bound.spare(()) >= 0:
            return {}
        missing: dict[str, list[int]] = {}
        for job_id, is_worker, count, chosen in self._pieces:
            if len(chosen) < count:
                missing.setdefault(job_id, [0, 0])[0 if is_worker else 1] += count - len(chosen)
        return {job_id: Allocation(workers, ps) for job_id, (workers, ps) in missing.items()}

    @cached_property
    def shares(self) -> Mapping[str, tuple[Share, ...]]:
        """The placement per job that got at least one task, nodes in their order."""
        tasks: dict[str, dict[int, list[int]]] = {}
        for job_id, is_worker, _, chosen in self._pieces:
            per_node = tasks.setdefault(job_id, {})
            for node in chosen.tolist():
                per_node.setdefault(node, [0, 0])[0 if is_worker else 1] += 1
        nodes = self._layout.nodes
        return {
            job_id: tuple(
                Share(nodes[index].node_id, Allocation(workers, ps))
                for index, (workers, ps) in sorted(per_node.items())
            )
            for job_id, per_node in tasks.items()
            if per_node
        }

    @cached_property
    def _pieces(self) -> list[tuple[str, bool, int, IntArray]]:
        """(job, whether workers, tasks requested, nodes of those placed), class by class."""
        by_class: dict[Resources, list[tuple[str, bool, int]]] = {}
        for job_id, worker_demand, ps_demand, allocation in self._requests:
            if allocation.workers:
                by_class.setdefault(worker_demand, []).append((job_id, True, allocation.workers))
            if allocation.ps:
                by_class.setdefault(ps_demand, []).append((job_id, False, allocation.ps))
        classes = [
            (demand, sum(count for _, _, count in by_class[demand])) for demand in sorted(by_class, key=placing_order)
        ]
        pieces = []
        for (demand, _), chosen in zip(classes, fill(self._layout, classes), strict=True):
            start = 0
            for job_id, is_worker, count in by_class[demand]:
                pieces.append((job_id, is_worker, count, chosen[start : start + count]))
                start += count
        return pieces
