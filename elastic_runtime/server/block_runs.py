"""Blocks side by side that one message can tell of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from elastic_runtime.model.layout import Block
from elastic_runtime.protocol.messages import RUN_BYTES


def block_runs(
    blocks: Sequence[Block], indices: Iterable[int], key: Callable[[Block], tuple[object, ...]]
) -> list[tuple[int, int]]:
    """Runs (first, count) of neighbours of one key, none larger than a message should be.

    Args:
        blocks: the model's.
        indices: of those to tell of, in this order.
        key: what a message says of all its blocks; the segment is part of it.
    """
    found: list[tuple[int, int]] = []
    last: tuple[object, ...] = ()
    run_bytes = 0
    for index in indices:
        block = blocks[index]
        now = key(block)
        run_bytes += block.size_bytes
        if found and now == last and index == found[-1][0] + found[-1][1] and run_bytes <= RUN_BYTES:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
            run_bytes = block.size_bytes
        last = now
    return found
