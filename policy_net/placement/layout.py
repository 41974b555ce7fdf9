"""Layout of a cluster's nodes: their capacities as arrays, the order of placing, and a proof that tasks fit, from sums.

`spread` fails on a task of class j only when every node is blocked for it: too little CPU or too few GPUs left. Only
classes placed before j, and j itself, have used anything by then, so blocking all nodes takes at least a certain sum
of their demand (of GPUs if j needs one, else of CPU). Below that sum, every task of class j has a place. For
DL2's demands (2 CPU and 1 or 0 GPU, on nodes of 8 CPU and 2 GPU) the bound is exact; elsewhere it may say "not proven".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Node, Resources

IntArray = NDArray[np.int64]

LAYOUTS_KEPT = 16
"""Enough for the clusters that one process simulates in turn; each keeps its nodes from decision to decision."""

_latest: list[NodeLayout] = []


class NodeLayout:
    """The nodes' capacities as arrays; build it once per set of nodes with `layout_of`."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.cpu_milli: IntArray = np.array([node.capacity.cpu_milli for node in nodes], dtype=np.int64)
        self.gpu: IntArray = np.array([node.capacity.gpu for node in nodes], dtype=np.int64)
        self.total = Resources(int(self.cpu_milli.sum()), int(self.gpu.sum()))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Where each node stands, by its id."""
        return {node.node_id: index for index, node in enumerate(self.nodes)}

    @cached_property
    def shapes(self) -> tuple[tuple[Resources, int], ...]:
        """The distinct node sizes and how many nodes have each."""
        counts: dict[Resources, int] = {}
        for node in self.nodes:
            counts[node.capacity] = counts.get(node.capacity, 0) + 1
        return tuple(counts.items())

    @cached_property
    def shape_arrays(self) -> tuple[IntArray, IntArray, IntArray]:
        """CPU in milli and GPUs of each distinct node size, and how many nodes have it."""
        rows = [(shape.cpu_milli, shape.gpu, count) for shape, count in self.shapes]
        cpu_milli, gpu, count = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return cpu_milli, gpu, count


def layout_of(nodes: tuple[Node, ...]) -> NodeLayout:
    """The layout of these nodes; the latest ones are remembered by the identity of the tuple."""
    for layout in _latest:
        if layout.nodes is nodes:
            return layout
    layout = NodeLayout(nodes)
    _latest[:] = [layout, *_latest[: LAYOUTS_KEPT - 1]]
    return layout


def placing_order(demand: Resources) -> tuple[int, int]:
    """Sort key of a demand class: GPU-heavy first, then CPU-heavy."""
    return (-demand.gpu, -demand.cpu_milli)


class VolumeBound:
    """Running sums of what is taken, by demand class, against the sums that could block every node."""

    def __init__(self, layout: NodeLayout, classes: tuple[Resources, ...]) -> None:
        self.classes, self._index, self._limits, self._largest = _bounds_of(layout, classes)
        self._counts = [0] * len(self.classes)
        self._used = [0] * len(self.classes)

    def add(self, demand: Resources, count: int = 1) -> None:
        """Count tasks of a known class as taken."""
        index = self._index[demand]
        self._counts[index] += count
        for later in range(index, len(self.classes)):
            self._used[later] += count * _amount(demand, self.classes[later])

    def spare(self, demands: tuple[Resources, ...]) -> int:
        """How many further tasks, of any of the classes, may be taken before these demands are in doubt.

        -1 if it is not certain that the demands fit now. All demands must be of the classes.
        """
        indices = [self._index[demand] for demand in demands]
        spare = sys.maxsize
        for index in range(len(self.classes)):
            here = self.classes[index]
            taken = self._used[index] - _amount(here, here)
            for demand, other in zip(demands, indices, strict=True):
                if other <= index:
                    taken += _amount(demand, here)
            margin = self._limits[index] - 1 - taken
            if margin < 0:
                if self._counts[index] or index in indices:
                    return -1
                spare = 0  # no task of this class is there that could fail, until one is taken
            elif self._largest[index]:
                spare = min(spare, margin // self._largest[index])
        return spare

    def rounds(self, per_round: Mapping[Resources, int]) -> int:
        """How often these numbers of tasks, all of known classes, may be taken on top and are certain to fit."""
        rounds = sys.maxsize
        for index, here in enumerate(self.classes):
            if not self._counts[index] and here not in per_round:
                continue
            margin = self._limits[index] - 1 - self._used[index] + _amount(here, here)
            if margin < 0:
                return 0
            taken = sum(count * _amount(demand, here) for demand, count in self._upto(index, per_round))
            if taken:
                rounds = min(rounds, margin // taken)
        return rounds

    def _upto(self, index: int, tasks: Mapping[Resources, int]) -> Iterator[tuple[Resources, int]]:
        return ((demand, count) for demand, count in tasks.items() if self._index[demand] <= index)


def _amount(demand: Resources, measured_for: Resources) -> int:
    """What a task takes of the resource by which the other class is measured."""
    return demand.gpu if measured_for.gpu else demand.cpu_milli


@lru_cache(maxsize=64)
def _bounds_of(
    layout: NodeLayout, classes: tuple[Resources, ...]
) -> tuple[tuple[Resources, ...], dict[Resources, int], tuple[int, ...], tuple[int, ...]]:
    """The classes in placing order, where each stands, its blocking sum, and the largest task up to it."""
    ordered = tuple(sorted(set(classes), key=placing_order))
    largest = tuple(max(_amount(other, here) for other in ordered[: index + 1]) for index, here in enumerate(ordered))
    return ordered, {demand: index for index, demand in enumerate(ordered)}, blocking_sums(layout, ordered), largest


def blocking_sums(layout: NodeLayout, classes: tuple[Resources, ...]) -> tuple[int, ...]:
    """For each class, the least sum of demand (its own and of classes before it) that can block all nodes for it.

    Args:
        classes: in placing order.
    """
    cpu_milli, gpu, nodes = layout.shape_arrays
    cpu_unit, gpu_unit = 0, 0
    heaviest: Resources | None = None
    """The class up to here that takes most CPU for a GPU."""
    sums = []
    for demand in classes:
        cpu_unit, gpu_unit = math.gcd(cpu_unit, demand.cpu_milli), math.gcd(gpu_unit, demand.gpu)
        to_block = _round_up(np.maximum(cpu_milli - demand.cpu_milli + 1, 0), cpu_unit or 1)
        if demand.gpu:
            if heaviest is None or demand.cpu_milli / demand.gpu > heaviest.cpu_milli / heaviest.gpu:
                heaviest = demand
            cpu_to_block = to_block
            to_block = _round_up(np.maximum(gpu - demand.gpu + 1, 0), gpu_unit or 1)
            # Blocking the CPU also uses GPUs, as every class up to here needs some: at least this many.
            if heaviest.cpu_milli:
                to_block = np.minimum(to_block, -(-cpu_to_block * heaviest.gpu // heaviest.cpu_milli))
        sums.append(int(nodes @ to_block))
    return tuple(sums)


def _round_up(values: IntArray, unit: int) -> IntArray:
    return -(-values // unit) * unit
