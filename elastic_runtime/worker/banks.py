"""Where a worker puts the values that come: in place, whole runs at once where all of them are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from elastic_runtime.model.layout import Block, Kind, Segment


class Banks(Protocol):
    """A worker's flat memory, as `FlatModel` has it."""

    def staging(self, segment: int) -> torch.Tensor:
        """The flat values of a segment of parameters after the step in hand."""
        ...

    def buffers(self, segment: int) -> torch.Tensor:
        """The flat values of a segment of buffers."""
        ...


def put_values(
    banks: Banks, segment: Segment, blocks: Sequence[Block], wanted: Sequence[Block], values: torch.Tensor
) -> None:
    """Copy blocks to their places.

    Args:
        banks: where.
        segment: of the blocks.
        blocks: a run of neighbours.
        wanted: those of them that are to be copied, at least one.
        values: of the whole run.
    """
    flat = banks.buffers(segment.index) if segment.kind is Kind.BUFFER else banks.staging(segment.index)
    if len(wanted) == len(blocks):
        flat[blocks[0].start : blocks[-1].stop].copy_(values)
        return
    for block in wanted:
        own = slice(block.start - blocks[0].start, block.stop - blocks[0].start)
        flat[block.start : block.stop].copy_(values[own])
