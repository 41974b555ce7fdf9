"""Placing together whose workers lose by lying apart, and leaving running jobs where they are if they like.

Jobs choose in the order given. Workers go to the fullest node that holds them all, where none does to the emptiest
ones; those of a job that loses nothing by lying apart, and all parameter servers, fill up the fullest nodes, so that
whole nodes stay free for others. Jobs that are to stay keep their places before anybody chooses; where tasks cannot be
moved at all, a job grows around those that it has.
Source: SCHED2 (packing by the fewest free GPUs that fit), Liquid (best fit). Deviation: by job, not by container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.domain import Allocation, Resources, Share
from policy_net.placement.layout import IntArray, NodeLayout

_FULL = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Placed:
    """A job to be placed.

    Attributes:
        loose: whether it loses nothing by lying apart.
        stays: where it lies now, if it is to stay there; empty otherwise. To be placed around, a part of it may.
    """

    job_id: str
    worker_demand: Resources
    ps_demand: Resources
    allocation: Allocation
    loose: bool = False
    stays: tuple[Share, ...] = ()


def place_together(layout: NodeLayout, jobs: Sequence[Placed]) -> dict[str, tuple[Share, ...]] | None:
    """The nodes of every job's tasks, in the nodes' order; None if some task does not fit this way."""
    free = _Free(layout)
    found: dict[str, tuple[Share, ...]] = {}
    for job in jobs:
        if job.stays:
            if not free.take_shares(job):
                return None
            found[job.job_id] = job.stays
    tasks: dict[str, dict[int, list[int]]] = {job.job_id: {} for job in jobs if not job.stays}
    for role in (0, 1):
        for job in jobs:
            if job.stays:
                continue
            desired = job.allocation
            demand, count = (job.worker_demand, desired.workers) if role == 0 else (job.ps_demand, desired.ps)
            placed = free.pack(demand, count, whole=role == 0 and not job.loose)
            if sum(number for _, number in placed) < count:
                return None
            for node, number in placed:
                tasks[job.job_id].setdefault(node, [0, 0])[role] += number
    for job_id, per_node in tasks.items():
        found[job_id] = tuple(
            Share(layout.nodes[node].node_id, Allocation(*counts)) for node, counts in sorted(per_node.items())
        )
    return found


def place_around(
    layout: NodeLayout, jobs: Sequence[Placed], others: Sequence[Placed] = ()
) -> dict[str, tuple[Share, ...]]:
    """The nodes of every job's tasks where those that lie somewhere stay, whatever capacity that leaves.

    What is new goes first to the nodes where its job lies. A task that fits nowhere has no node: the cluster, which
    counts more exactly, may have one for it. A job may lie on nodes of others, too.

    Args:
        others: jobs that are not to be placed, and lie on some of these nodes.
    """
    free = _Free(layout)
    for job in (*others, *jobs):
        free.occupy(job)
    tasks: dict[str, dict[str, list[int]]] = {
        job.job_id: {share.node_id: [share.allocation.workers, share.allocation.ps] for share in job.stays}
        for job in jobs
    }
    for role in (0, 1):
        for job in jobs:
            shares_now, desired = tasks[job.job_id], job.allocation
            demand, size = (job.worker_demand, desired.workers) if role == 0 else (job.ps_demand, desired.ps)
            near = [layout.index[node] for node, counts in shares_now.items() if counts[role] and node in layout.index]
            count = max(size - sum(counts[role] for counts in shares_now.values()), 0)
            for node, number in free.pack(demand, count, whole=role == 0 and not job.loose, near=near):
                shares_now.setdefault(layout.nodes[node].node_id, [0, 0])[role] += number
    return {
        job_id: tuple(Share(node, Allocation(*counts)) for node, counts in shares_now.items())
        for job_id, shares_now in tasks.items()
    }


class _Free:
    def __init__(self, layout: NodeLayout) -> None:
        self._cpu_milli = layout.cpu_milli.copy()
        self._gpu = layout.gpu.copy()
        self._index: Mapping[str, int] = layout.index

    def take_shares(self, job: Placed) -> bool:
        """Take what a job holds; says whether it was free."""
        for share in job.stays:
            node = self._index.get(share.node_id)
            if node is None:
                return False
            needed = job.worker_demand * share.allocation.workers + job.ps_demand * share.allocation.ps
            self._cpu_milli[node] -= needed.cpu_milli
            self._gpu[node] -= needed.gpu
            if self._cpu_milli[node] < 0 or self._gpu[node] < 0:
                return False
        return True

    def occupy(self, job: Placed) -> None:
        """Take what a job holds, even if that was not free; on nodes that are not here it takes nothing."""
        for share in job.stays:
            node = self._index.get(share.node_id)
            if node is not None:
                needed = job.worker_demand * share.allocation.workers + job.ps_demand * share.allocation.ps
                self._cpu_milli[node] = max(self._cpu_milli[node] - needed.cpu_milli, 0)
                self._gpu[node] = max(self._gpu[node] - needed.gpu, 0)

    def pack(self, demand: Resources, count: int, *, whole: bool, near: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Take capacity for so many tasks, or for as many as there is any, if possible on one node.

        Args:
            whole: whether they go together to the fullest node that holds all.
            near: nodes that come before all others, by their numbers.
        """
        placed: list[tuple[int, int]] = []
        if not count:
            return placed
        capacities = self._capacities(demand, count)
        by = self._gpu if demand.gpu else self._cpu_milli
        nearest = sorted(near, key=lambda node: -int(capacities[node]))
        while count and capacities.any():
            if nearest and not capacities[nearest[0]]:
                nearest = []
            if nearest:
                chosen = nearest.pop(0)
            elif whole and (capacities >= count).any():
                chosen = int(np.where(capacities >= count, by, _FULL).argmin())
            elif whole:
                chosen = int(capacities.argmax())
            else:
                chosen = int(np.where(capacities > 0, by, _FULL).argmin())
            number = min(int(capacities[chosen]), count)
            self._cpu_milli[chosen] -= number * demand.cpu_milli
            self._gpu[chosen] -= number * demand.gpu
            capacities[chosen] = 0
            placed.append((chosen, number))
            count -= number
        return placed

    def _capacities(self, demand: Resources, count: int) -> IntArray:
        capacities = np.full(len(self._gpu), count, dtype=np.int64)
        if demand.cpu_milli:
            np.minimum(capacities, self._cpu_milli // demand.cpu_milli, out=capacities)
        if demand.gpu:
            np.minimum(capacities, self._gpu // demand.gpu, out=capacities)
        return capacities
