"""Pools: the nodes of a cluster by the type of their GPUs, and the steps that jobs may take in each.

A job lies within one pool, since the slowest GPU sets the pace of most. Nodes without GPUs, where parameter servers may
go, are dealt out among the pools by their GPUs. While some job is too large for any pool, or for the one that it keeps
to, all nodes are one.
Source: our own; Gavel (OSDI 2020) has types of GPUs in every policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policy_net.domain import ClusterState, Job, Moves, Node, PlacementEffect, Resources, Share
from policy_net.set_policy.steps import Prices, StepTable
from policy_net.throughput.beliefs import Grid

ALL = "*"
"""The pool of all nodes; no GPU type has this name."""
Places = tuple[tuple[str, int], ...]
_UNBOUNDED = np.iinfo(np.int64).max
"""Capacity for tasks that need nothing."""
_Capacities = npt.NDArray[np.int64]


class GpuPool:
    """Nodes that a job may lie on together: those with GPUs of one type, or all of a cluster.

    Attributes:
        name: the type, or `ALL`.
        nodes: in the cluster's order, always the same tuple.
        gpu_type: of its first node that has GPUs.
    """

    def __init__(self, name: str, nodes: tuple[Node, ...]) -> None:
        self.name = name
        self.nodes = nodes
        self.gpu_types = {node.node_id: node.gpu_type for node in nodes}
        self.gpu_type = next((node.gpu_type for node in nodes if not _is_without_gpus(node)), "")
        self._cpu_milli = np.array([node.capacity.cpu_milli for node in nodes], dtype=np.int64)
        self._gpu = np.array([node.capacity.gpu for node in nodes], dtype=np.int64)
        self._places: dict[tuple[Resources, int], Places | None] = {}
        self._known_capacities: dict[Resources, tuple[_Capacities, _Capacities]] = {}

    def fewest(self, demand: Resources, workers: int) -> Places | None:
        """How so many workers lie on as few empty nodes as possible; None if they do not fit."""
        key = (demand, workers)
        if key not in self._places:
            self._places[key] = self._fewest(demand, workers)
        return self._places[key]

    def holds(self, job: Job) -> bool:
        """Whether the least that a job trains with fits on empty nodes, each role by itself."""
        fits = self.fewest(job.worker_demand, max(job.min_workers, 1)) is not None
        if not fits or not job.min_ps:
            return fits
        capacities, _ = self._capacities(job.ps_demand)
        return int(np.minimum(capacities, job.min_ps).sum()) >= job.min_ps

    def _fewest(self, demand: Resources, workers: int) -> Places | None:
        capacities, largest_first = self._capacities(demand)
        whole = capacities >= workers
        if workers and whole.any():
            return ((self.nodes[int(whole.argmax())].gpu_type, workers),)
        left, places = workers, []
        for number in largest_first:
            if not left or not capacities[number]:
                break
            taken = min(int(capacities[number]), left)
            places.append((self.nodes[number].gpu_type, taken))
            left -= taken
        return None if left else tuple(places)

    def _capacities(self, demand: Resources) -> tuple[_Capacities, _Capacities]:
        """How many tasks each node has capacity for, and the nodes' numbers, those with most capacity first."""
        if demand not in self._known_capacities:
            capacities = np.full(len(self.nodes), _UNBOUNDED)
            for has, needs in ((self._gpu, demand.gpu), (self._cpu_milli, demand.cpu_milli)):
                if needs:
                    capacities = np.minimum(capacities, has // needs)
            self._known_capacities[demand] = capacities, np.argsort(-capacities, kind="stable")
        return self._known_capacities[demand]


def home_in(pools: Sequence[GpuPool], job: Job, shares: Sequence[Share]) -> int | None:
    """The pool that a job keeps to as long as it holds anything; None if it holds nothing, or may move freely.

    It is where most of its workers lie, or where it has none yet, most of its parameter servers.
    """
    if job.moves is Moves.FREELY:
        return None
    counts = [
        (
            sum(share.allocation.workers for share in shares if share.node_id in pool.gpu_types),
            sum(share.allocation.ps for share in shares if share.node_id in pool.gpu_types),
        )
        for pool in pools
    ]
    best = max(range(len(pools)), key=lambda each: (counts[each], -each), default=None)
    return None if best is None or counts[best] == (0, 0) else best


class PlaceTables:
    """Step tables of jobs in pools, on speeds as they are believed to be there; kept from decision to decision."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._pools: tuple[GpuPool, ...] = ()
        self._whole: tuple[GpuPool, ...] = (GpuPool(ALL, ()),)
        self._known: dict[tuple[object, ...], tuple[Grid, object, StepTable]] = {}

    def pools(self, state: ClusterState) -> tuple[GpuPool, ...]:
        """The pools of a cluster, in the order of their first nodes; the same as long as the nodes are.

        All nodes are one pool while there is a job too large for any other: it would never start; and while one
        keeps to a pool that is too small for it: it would be suspended.
        """
        nodes = state.nodes
        if nodes is not self._nodes:
            if nodes != self._nodes:
                self._pools = _pools_of(nodes)
                self._whole = (GpuPool(ALL, nodes),)
                self._known.clear()
            self._nodes = nodes
        return self._pools if self._pools and all(self._fits(job, state) for job in state.jobs) else self._whole

    def _fits(self, job: Job, state: ClusterState) -> bool:
        home = home_in(self._pools, job, (state.placement or {}).get(job.job_id, ()))
        return any(pool.holds(job) for pool in self._pools) if home is None else self._pools[home].holds(job)

    def of(
        self, job: Job, pool: GpuPool, grid: Grid, effect: PlacementEffect, version: object, prices: Prices
    ) -> StepTable:
        """The steps of a job in a pool.

        Args:
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


def _is_without_gpus(node: Node) -> bool:
    """Not one whose GPUs others have: it names their type."""
    return not node.gpu_type and not node.capacity.gpu


def _pools_of(nodes: tuple[Node, ...]) -> tuple[GpuPool, ...]:
    """A pool of each type; each node without GPUs goes to the pool that has most GPUs for each of those it has."""
    gpus: dict[str, int] = {}
    for node in nodes:
        if not _is_without_gpus(node):
            gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.capacity.gpu
    if not gpus:
        return (GpuPool("", nodes),) if nodes else ()
    members: dict[str, list[Node]] = {gpu_type: [] for gpu_type in gpus}
    without = dict.fromkeys(gpus, 0)
    for node in nodes:
        gpu_type = node.gpu_type
        if _is_without_gpus(node):
            gpu_type = max(gpus, key=lambda each: gpus[each] / (1 + without[each]))
            without[gpu_type] += 1
        members[gpu_type].append(node)
    return tuple(GpuPool(gpu_type, tuple(found)) for gpu_type, found in members.items())
