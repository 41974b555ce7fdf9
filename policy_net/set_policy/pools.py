"""Pools: the nodes of a cluster by the type of their GPUs, and the steps that jobs may take in each.

A job lies within one pool, since the slowest GPU sets the pace of most. While some job is too large for any, all nodes
are one.
Source: our own; Gavel (OSDI 2020) has types of GPUs in every policy.
"""

from __future__ import annotations

import numpy as np

from policy_net.domain import ClusterState, Job, Node, PlacementEffect, Resources
from policy_net.set_policy.steps import Prices, StepTable
from policy_net.throughput.beliefs import Grid

ALL = "*"
"""The pool of all nodes; no GPU type has this name."""
Places = tuple[tuple[str, int], ...]


class Pool:
    """Nodes that a job may lie on together: those with GPUs of one type, or all of a cluster.

    Attributes:
        name: the type, or `ALL`.
        nodes: in the cluster's order, always the same tuple.
        gpu_types: by node.
    """

    def __init__(self, name: str, nodes: tuple[Node, ...]) -> None:
        self.name = name
        self.nodes = nodes
        self.gpu_types = {node.node_id: node.gpu_type for node in nodes}
        self._places: dict[tuple[Resources, int], Places | None] = {}

    def fewest(self, demand: Resources, workers: int) -> Places | None:
        """How so many workers lie on as few empty nodes as possible; None if they do not fit."""
        key = (demand, workers)
        if key not in self._places:
            left, places = workers, []
            rooms = [(_room(node.capacity, demand, workers), node.gpu_type) for node in self.nodes]
            for room, gpu_type in sorted(rooms, key=lambda each: -each[0]):
                if left and room:
                    places.append((gpu_type, min(room, left)))
                    left -= min(room, left)
            self._places[key] = None if left else tuple(places)
        return self._places[key]


class PlaceTables:
    """Step tables of jobs in pools, on speeds as they are believed to be there; kept from decision to decision."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._pools: tuple[Pool, ...] = ()
        self._whole: tuple[Pool, ...] = (Pool(ALL, ()),)
        self._known: dict[tuple[object, ...], tuple[Grid, object, StepTable]] = {}

    def pools(self, state: ClusterState) -> tuple[Pool, ...]:
        """The pools of a cluster, in the order of their first nodes; the same as long as the nodes are.

        All nodes are one pool while there is a job too large for any other: it would never start.
        """
        nodes = state.nodes
        if nodes is not self._nodes:
            if nodes != self._nodes:
                by_type: dict[str, list[Node]] = {}
                for node in nodes:
                    by_type.setdefault(node.gpu_type, []).append(node)
                self._pools = tuple(Pool(gpu_type, tuple(members)) for gpu_type, members in by_type.items())
                self._whole = (Pool(ALL, nodes),)
                self._known.clear()
            self._nodes = nodes
        least = {(job.worker_demand, max(job.min_workers, 1)) for job in state.jobs}
        fit = all(any(pool.fewest(*each) is not None for pool in self._pools) for each in least)
        return self._pools if fit and self._pools else self._whole

    def of(
        self, job: Job, pool: Pool, grid: Grid, effect: PlacementEffect, version: object, prices: Prices
    ) -> StepTable:
        """The steps of a job in a pool.

        Args:
            grid: speeds in the best place.
            version: another one for every change of the effect.
        """
        caps = (job.max_ps, job.max_workers, job.min_ps, job.min_workers)
        key = (job.job_type, job.worker_demand, pool.name, *caps)
        known = self._known.get(key)
        if known is None or known[0] is not grid or known[1] != version:
            factors = np.zeros(grid.shape[1])
            for workers in range(1, min(len(factors), job.max_workers + 1)):
                places = pool.fewest(job.worker_demand, workers)
                factors[workers] = 0.0 if places is None else effect.relative_speed(job.job_type, places)
            table = StepTable(grid * factors, job.max_ps, job.max_workers, job.smallest)
            known = self._known[key] = (grid, version, table)
        known[2].count_in(prices)
        return known[2]


def _room(capacity: Resources, demand: Resources, most: int) -> int:
    room = most
    if demand.gpu:
        room = min(room, capacity.gpu // demand.gpu)
    if demand.cpu_milli:
        room = min(room, capacity.cpu_milli // demand.cpu_milli)
    return room
