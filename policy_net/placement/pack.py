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

from policy_net.domain import Allocation, Resources, Share
from policy_net.placement.layout import NodeLayout, placing_order
from policy_net.placement.spread import SpreadPlan, Wanted

Tasks = list[tuple[int, int]]
"""(node index, number of tasks there)."""


class PackPlan:
    """Where the tasks of an allocation go, packed; spread if they do not all fit that way."""

    def __init__(self, layout: NodeLayout, wanted: Sequence[Wanted]) -> None:
        self._layout = layout
        self._wanted = wanted
        self._spread = SpreadPlan(layout, wanted)

    @property
    def unplaced(self) -> Mapping[str, Allocation]:
        """What no node has room for, per job: exactly what `spread` would leave."""
        return self._spread.unplaced

    @cached_property
    def shares(self) -> Mapping[str, tuple[Share, ...]]:
        """The placement per job that got at least one task, nodes in their order."""
        packed = None if self._spread.unplaced else self._pack()
        return self._spread.shares if packed is None else packed

    def _pack(self) -> dict[str, tuple[Share, ...]] | None:
        """The packed placement; None if some task finds no room."""
        free = _FreeNodes(self._layout)
        tasks: dict[str, dict[int, list[int]]] = {}
        pieces = [(job_id, 0, worker, held.workers) for job_id, worker, _, held in self._wanted]
        pieces += [(job_id, 1, ps, held.ps) for job_id, _, ps, held in self._wanted]
        # Sorting is stable: among equals, earlier jobs choose first.
        for job_id, role, demand, count in sorted(pieces, key=lambda piece: (*placing_order(piece[2]), -piece[3])):
            placed = free.pack(demand, count)
            if placed is None:
                return None
            for node, number in placed:
                tasks.setdefault(job_id, {}).setdefault(node, [0, 0])[role] += number
        nodes = self._layout.nodes
        return {
            job_id: tuple(Share(nodes[node].node_id, Allocation(*held)) for node, held in sorted(per_node.items()))
            for job_id, _, _, _ in self._wanted
            if (per_node := tasks.get(job_id))
        }


class _FreeNodes:
    """What is free on every node, as plain integers."""

    def __init__(self, layout: NodeLayout) -> None:
        self._cpu_milli: list[int] = layout.cpu_milli.tolist()
        self._gpu: list[int] = layout.gpu.tolist()

    def pack(self, demand: Resources, count: int) -> Tasks | None:
        """Take room for so many tasks on as few nodes as possible; None if there is too little in all."""
        rooms = self._rooms(demand, count)
        by = self._gpu if demand.gpu else self._cpu_milli
        placed: Tasks = []
        while count:
            whole = [node for node, room in enumerate(rooms) if room >= count]
            if whole:
                chosen, number = min(whole, key=lambda node: (by[node], node)), count
            else:
                chosen = max(range(len(rooms)), key=lambda node: (rooms[node], -node), default=-1)
                number = rooms[chosen] if chosen >= 0 else 0
                if number == 0:
                    return None
            self._cpu_milli[chosen] -= number * demand.cpu_milli
            self._gpu[chosen] -= number * demand.gpu
            rooms[chosen] = 0
            placed.append((chosen, number))
            count -= number
        return placed

    def _rooms(self, demand: Resources, count: int) -> list[int]:
        """How many tasks each node could hold, at most `count`."""
        rooms = [count] * len(self._gpu)
        if demand.cpu_milli:
            rooms = [min(count, free // demand.cpu_milli) for free in self._cpu_milli]
        if demand.gpu:
            rooms = [min(room, free // demand.gpu) for room, free in zip(rooms, self._gpu, strict=True)]
        return rooms
