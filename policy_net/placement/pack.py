"""Packing: a job's workers on as few nodes as possible, so that they exchange gradients over short ways.

Jobs with most workers go first, and the workers of a job before any parameter server. A job's workers go to the
fullest node that can hold them all (fewest GPUs free); where none can, as many as possible go to the emptiest one, and
so on with the rest. Parameter servers follow the same rule, by CPU.
Source: SCHED2 (packing of a job onto the server with the fewest free GPUs that fits).
Deviation: what cannot be placed this way is placed by `spread` for the whole decision, so that packing never costs
capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush

from policy_net.domain import Allocation, Resources, Share
from policy_net.placement.layout import NodeLayout, placing_order
from policy_net.placement.spread import SpreadPlan, TaskRequest

Tasks = list[tuple[int, int]]
"""(node index, number of tasks there)."""


class PackPlan:
    """Where the tasks of an allocation go, packed; spread if they do not all fit that way."""

    def __init__(self, layout: NodeLayout, requests: Sequence[TaskRequest]) -> None:
        self._layout = layout
        self._requests = requests
        self._spread = SpreadPlan(layout, requests)

    @property
    def unplaced(self) -> Mapping[str, Allocation]:
        """What fits into no node, per job: exactly what `spread` would leave."""
        return self._spread.unplaced

    @cached_property
    def shares(self) -> Mapping[str, tuple[Share, ...]]:
        """The placement per job that got at least one task, nodes in their order."""
        packed = None if self._spread.unplaced else self._pack()
        return self._spread.shares if packed is None else packed

    def _pack(self) -> dict[str, tuple[Share, ...]] | None:
        """The packed placement; None if some task does not fit."""
        free = _FreeNodes(self._layout)
        tasks: dict[str, dict[int, list[int]]] = {}
        pieces = [(job_id, 0, worker, counts.workers) for job_id, worker, _, counts in self._requests]
        pieces += [(job_id, 1, ps, counts.ps) for job_id, _, ps, counts in self._requests]
        # Sorting is stable: among equals, earlier jobs choose first.
        for job_id, role, demand, count in sorted(pieces, key=lambda piece: (*placing_order(piece[2]), -piece[3])):
            placed = free.pack(demand, count)
            if placed is None:
                return None
            for node, number in placed:
                tasks.setdefault(job_id, {}).setdefault(node, [0, 0])[role] += number
        nodes = self._layout.nodes
        return {
            job_id: tuple(Share(nodes[node].node_id, Allocation(*counts)) for node, counts in sorted(per_node.items()))
            for job_id, _, _, _ in self._requests
            if (per_node := tasks.get(job_id))
        }


class _FreeNodes:
    """What is free on every node, as plain integers.

    Nodes with as much free are alike but for their order, and few differ: most are full.
    """

    def __init__(self, layout: NodeLayout) -> None:
        self._alike: dict[int, dict[int, list[int]]] = {}
        """Free GPUs, then free CPU in thousandths, of a heap of nodes, the first of which is chosen first."""
        for node, (gpu, cpu_milli) in enumerate(zip(layout.gpu.tolist(), layout.cpu_milli.tolist(), strict=True)):
            self._alike.setdefault(gpu, {}).setdefault(cpu_milli, []).append(node)

    def pack(self, demand: Resources, count: int) -> Tasks | None:
        """Take capacity for so many tasks on as few nodes as possible; None if there is too little in all."""
        placed: Tasks = []
        while count:
            chosen = self._choose(demand, count)
            if chosen is None:
                return None
            gpu, cpu_milli, number = chosen
            node = self._take(gpu, cpu_milli)
            left_gpu, left_cpu_milli = gpu - number * demand.gpu, cpu_milli - number * demand.cpu_milli
            heappush(self._alike.setdefault(left_gpu, {}).setdefault(left_cpu_milli, []), node)
            placed.append((node, number))
            count -= number
        return placed

    def _choose(self, demand: Resources, count: int) -> tuple[int, int, int] | None:
        """Free GPUs and CPU of the node that goes next, and how many tasks it is given; None if none fits.

        The fullest that holds them all, in what these tasks are short of, or else the one that holds most; among equals
        the first.
        """
        needed_gpu, needed_cpu_milli = demand.gpu, demand.cpu_milli
        most = 0
        best: tuple[int, int] | None = None
        chosen = None
        for gpu, by_cpu in self._alike.items():
            capacity_by_gpu = min(count, gpu // needed_gpu) if needed_gpu else count
            if capacity_by_gpu < max(most, 1):
                continue
            for cpu_milli, nodes in by_cpu.items():
                free_capacity = (
                    min(capacity_by_gpu, cpu_milli // needed_cpu_milli) if needed_cpu_milli else capacity_by_gpu
                )
                if free_capacity < max(most, 1):
                    continue
                rank = ((gpu if needed_gpu else cpu_milli) if free_capacity == count else 0, nodes[0])
                if best is None or free_capacity > most or rank < best:
                    most, best, chosen = free_capacity, rank, (gpu, cpu_milli, free_capacity)
        return chosen

    def _take(self, gpu: int, cpu_milli: int) -> int:
        nodes = self._alike[gpu][cpu_milli]
        node = heappop(nodes)
        if not nodes:
            del self._alike[gpu][cpu_milli]
        return node
