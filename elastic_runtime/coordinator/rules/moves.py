"""Moves of blocks from one plan's holders to another's: who is to hold what, cut into the stages that lead there.

Equal load and as few moves as can be are `partition`'s and `replication`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastic_runtime.model import partition
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.partition import BlockMove
from elastic_runtime.model.replication import assign_holders
from elastic_runtime.protocol.plan import ChangeStage, Plan


def assign(layout: Layout, servers: Sequence[str], before: Plan, holders: int) -> Plan:
    """A plan with other holders of the blocks: equal load, and as much as can be stays where it is.

    Args:
        before: who holds them now, lost ones too; without owners: nobody.
        holders: how many each block is to have, 1 or 2; with one server it has one.
    """
    if holders == 1:
        after = partition.assign(layout, servers, dict(enumerate(before.owners)))
        return Plan(before.workers, tuple(after[block.index] for block in layout.blocks))
    previous = {block: before.holders(block) for block in range(len(before.owners))}
    found = assign_holders(layout, servers, previous)
    rows = [found[block.index] for block in layout.blocks]
    replicas = tuple(names[1] if len(names) > 1 else "" for names in rows)
    return Plan(before.workers, tuple(names[0] for names in rows), replicas=replicas if any(replicas) else ())


def stages(
    layout: Layout, named: Plan, before: Plan, after: Plan, workers: tuple[str, ...] | None, budget_bytes: int
) -> tuple[tuple[ChangeStage, ...], int]:
    """What leads from one plan's holders to another's, and how many bytes that moves.

    The moves are cut into portions of at most `budget_bytes`, or one block; the first stage also has the new workers
    (None: they stay), and what moves nothing: holders that swap their parts, or are no longer named.

    Args:
        named: what the stages change, with lost servers.
    """
    moves: list[BlockMove] = []
    moved_bytes = 0
    silent: list[int] = []
    for block in range(len(after.owners)):
        old, new = before.holders(block), after.holders(block)
        coming = [name for name in new if name not in old]
        if coming:
            leaving = [name for name in old if name not in new]
            moves.append(BlockMove(block, (leaving or old)[0], coming[0]))
            moved_bytes += layout.blocks[block].size_bytes * len(coming)
        elif named.holders(block) != new:
            silent.append(block)
    portions = [[move.block for move in portion] for portion in partition.batches(moves, layout, max(budget_bytes, 1))]
    first, *rest = portions or [[]]
    cut = [_stage(named, after, [*silent, *first], workers), *(_stage(named, after, part, None) for part in rest)]
    return tuple(cut), moved_bytes


def _stage(named: Plan, after: Plan, blocks: Sequence[int], workers: tuple[str, ...] | None) -> ChangeStage:
    return ChangeStage(
        {block: after.owners[block] for block in blocks if named.owners[block] != after.owners[block]},
        workers,
        {block: after.replica(block) for block in blocks if named.replica(block) != after.replica(block)},
    )
