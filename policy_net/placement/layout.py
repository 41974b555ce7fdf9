"""The nodes of a cluster as arrays, and the order in which demand classes are placed on them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Node, Resources

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


LAYOUTS_KEPT = 16
"""Enough for the clusters that one process simulates in turn; each keeps its nodes from decision to decision."""

_latest: list[NodeLayout] = []


def layout_of(nodes: tuple[Node, ...]) -> NodeLayout:
    """The layout of these nodes; the latest ones are remembered by the identity of the tuple."""
    for layout in _latest:
        if layout.nodes is nodes:
            return layout
    layout = NodeLayout(nodes)
    _latest[:] = [layout, *_latest[: LAYOUTS_KEPT - 1]]
    return layout
