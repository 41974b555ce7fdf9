"""Who gets which blocks, and in what portions they move: `partition`, in the terms of plans."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_runtime import partition
from elastic_runtime.layout import Layout
from elastic_runtime.plan import Stage


def assign(layout: Layout, servers: Sequence[str], owners: Sequence[str] = ()) -> tuple[str, ...]:
    """Owners of the blocks: equal load, and as much as can be stays where it is.

    Args:
        layout: of the model.
        servers: who may own some.
        owners: who owns them now, lost ones too; empty: nobody.
    """
    after = partition.assign(layout, servers, dict(enumerate(owners)))
    return tuple(after[block.index] for block in layout.blocks)


def stages(
    layout: Layout, before: Sequence[str], after: Sequence[str], workers: tuple[str, ...] | None, budget_bytes: int
) -> tuple[tuple[Stage, ...], int]:
    """What leads from one list of owners to another, and how many bytes that moves.

    The moves are cut into portions of at most `budget_bytes`, or one block; the first stage also has the new workers
    (None: they stay).
    """
    moves = partition.moves(dict(enumerate(before)), dict(enumerate(after)))
    moved_bytes = sum(layout.blocks[move.block].size_bytes for move in moves)
    portions = partition.batches(moves, layout, max(budget_bytes, 1)) or [[]]
    first, *rest = [{move.block: move.target for move in portion} for portion in portions]
    return (Stage(first, workers), *(Stage(portion) for portion in rest)), moved_bytes
