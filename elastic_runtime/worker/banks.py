"""Flat memory for the segments of a worker's model: a view of it for each tensor, and values that come put in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from elastic_runtime.model.layout import Block, Segment, TensorKind
from elastic_runtime.protocol.block_runs import part_of

Allocate = Callable[[str, int], memoryview]
"""`allocate(name, size_bytes)` gives writable memory of at least so many bytes; a model asks for each name once."""


@dataclass(slots=True, frozen=True)
class Bank:
    """One segment's values.

    Attributes:
        host: (elements of the segment,) in the caller's memory.
        device: the same values where the model computes; `host` itself, unless that is an accelerator.
        views: of `device`, one for each tensor, in its shape.
    """

    host: torch.Tensor
    device: torch.Tensor
    views: tuple[torch.Tensor, ...]

    @property
    def on_host(self) -> bool:
        """Whether there is one copy only."""
        return self.device is self.host

    def to_device(self) -> None:
        """Bring what was written to `host` to where the model computes."""
        if not self.on_host:
            self.device.copy_(self.host)

    def to_host(self) -> None:
        """Bring what the model computed to `host`."""
        if not self.on_host:
            self.host.copy_(self.device)


def flat_tensor(allocate: Allocate, name: str, segment: Segment) -> torch.Tensor:
    """A flat tensor (elements of the segment,) in memory that `allocate` gives for `name-INDEX`.

    Raises:
        ValueError: it gave too little, or memory that cannot be written to.
    """
    dtype = getattr(torch, segment.dtype)
    size_bytes = segment.elements * segment.element_bytes
    memory = allocate(f"{name}-{segment.index}", size_bytes)
    if memory.nbytes < size_bytes or memory.readonly:
        raise ValueError(f"{name}-{segment.index} wants {size_bytes} writable bytes, and was given {memory.nbytes}")
    if size_bytes == 0:
        return torch.empty(0, dtype=dtype)  # torch makes no tensor of no bytes
    return torch.frombuffer(memory, dtype=dtype, count=segment.elements)


def make_bank(allocate: Allocate, name: str, segment: Segment, device: torch.device) -> Bank:
    """A bank of a segment for a model that computes on `device`."""
    host = flat_tensor(allocate, name, segment)
    there = host if device.type == "cpu" else torch.zeros_like(host, device=device)
    views = tuple(there[slot.start : slot.start + slot.size].view(slot.tensor.shape) for slot in segment.slots)
    return Bank(host, there, views)


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
        wanted: those of them that are to be copied, at least one.
    """
    flat = banks.buffers(segment.index) if segment.kind is TensorKind.BUFFER else banks.staging(segment.index)
    if len(wanted) == len(blocks):
        flat[blocks[0].start : blocks[-1].stop].copy_(values)
        return
    for block in wanted:
        flat[block.start : block.stop].copy_(part_of(values, blocks, block))
