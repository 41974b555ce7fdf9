"""Runs of adjacent blocks, as one message tells of them: which blocks, and its memory as a tensor without a copy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import torch

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Block, Segment
from elastic_runtime.protocol.messages import RUN_BYTES

Payload = Sequence[memoryview]
"""What came with a message's header, part by part; read-only."""

with warnings.catch_warnings():
    # Torch warns once in a process that it cannot keep read-only memory from being written to. We only read it.
    warnings.simplefilter("ignore", UserWarning)
    torch.frombuffer(b"\0", dtype=torch.uint8)


def flat_view(payload: Payload, part: int, segment: Segment, blocks: Sequence[Block]) -> torch.Tensor:
    """A flat tensor over the part of a message that carries a run of blocks; only to be read.

    Returns:
        Shape (elements of the run,), of the segment's dtype.

    Raises:
        ProtocolError: the part is missing or has another size.
    """
    elements = blocks[-1].stop - blocks[0].start
    came_bytes = payload[part].nbytes if part < len(payload) else 0
    if came_bytes != elements * segment.element_bytes:
        raise ProtocolError(f"{came_bytes} bytes came for blocks of {elements * segment.element_bytes} bytes")
    return torch.frombuffer(payload[part], dtype=getattr(torch, segment.dtype), count=elements)


def part_of(values: torch.Tensor, blocks: Sequence[Block], block: Block) -> torch.Tensor:
    """A block's elements among those of a run."""
    return values[block.start - blocks[0].start : block.stop - blocks[0].start]


def run_of(blocks: Sequence[Block], first: int, count: int) -> Sequence[Block]:
    """The blocks that a message names.

    Raises:
        ProtocolError: the model has no such run: numbers too high, or blocks of two segments.
    """
    run = blocks[first : first + count]
    if not run or len(run) != count or run[0].segment != run[-1].segment:
        raise ProtocolError(f"blocks {first} to {first + count - 1} are not a run of this model's blocks")
    return run


def block_runs(
    blocks: Sequence[Block],
    indices: Iterable[int],
    key: Callable[[Block], object] = attrgetter("segment"),
    most_bytes: int = RUN_BYTES,
) -> list[tuple[int, int]]:
    """Runs (first, count) of neighbours of one key, none larger than a message should be; a larger block goes alone.

    Args:
        key: what a message says of all its blocks; the segment is part of it.
    """
    found: list[tuple[int, int]] = []
    last: object = None
    run_bytes = 0
    for index in indices:
        block = blocks[index]
        now = key(block)
        run_bytes += block.size_bytes
        if found and now == last and index == found[-1][0] + found[-1][1] and run_bytes <= most_bytes:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
            run_bytes = block.size_bytes
        last = now
    return found
