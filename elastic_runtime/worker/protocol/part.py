"""A worker's part in the protocol, however its job trains: what it waits for, and where values go when they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Block, Layout, Segment, TensorKind
from elastic_runtime.protocol.block_runs import Payload, flat_view, part_of, run_of
from elastic_runtime.protocol.messages import Current, Header, Outgoing, Push, Update, Values
from elastic_runtime.protocol.plan import Timeline


class Banks(Protocol):
    """A worker's flat memory, as `FlatModel` has it."""

    def staging(self, segment: int) -> Tensor:
        """The flat values of a segment of parameters after the step in hand."""
        ...

    def buffers(self, segment: int) -> Tensor:
        """The flat values of a segment of buffers."""
        ...


class WorkerPart(ABC):
    """One worker's part in the protocol, for one generation after the other; values are put into the banks."""

    def __init__(self, layout: Layout, banks: Banks) -> None:
        self.generation = 0
        self._layout = layout
        self._banks = banks
        self._buffers = layout.buffer_blocks
        self._timeline: Timeline | None = None
        self._outstanding: set[int] = set()

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message; one of another generation is passed over.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        return self._act(peer, header, payload) if header.generation == self.generation else []

    def part(self, header: Push | Update) -> tuple[int, int, int]:
        """The memory that goes with a message: segment, first element, last element + 1."""
        blocks = self._layout.blocks[header.first : header.first + header.count]
        return blocks[0].segment, blocks[0].start, blocks[-1].stop

    @property
    def is_complete(self) -> bool:
        """Whether all blocks are there."""
        return not self._outstanding

    @abstractmethod
    def ask(self) -> list[Outgoing]:
        """Ask for everything that is outstanding."""

    @abstractmethod
    def owners_waited_for(self) -> frozenset[str]:
        """The parameter servers from which blocks, or their word about them, are outstanding."""

    @abstractmethod
    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message of the generation in hand."""

    @property
    def _plans(self) -> Timeline:
        if self._timeline is None:
            raise RuntimeError("no view has come yet")
        return self._timeline

    def _read(self, header: Values | Current, payload: Payload) -> tuple[Segment, Sequence[Block], Tensor]:
        blocks = run_of(self._layout.blocks, header.first, header.count)
        segment = self._layout.segments[blocks[0].segment]
        if len(payload) != 1:
            raise ProtocolError(f"values came in {len(payload)} parts")
        return segment, blocks, flat_view(payload, 0, segment, blocks)

    def _put(self, segment: Segment, blocks: Sequence[Block], fresh: Sequence[Block], values: Tensor) -> None:
        """Copy those of a run's blocks that are fresh, at least one, to their places."""
        of_kind = self._banks.buffers if segment.kind is TensorKind.BUFFER else self._banks.staging
        flat = of_kind(segment.index)
        if len(fresh) == len(blocks):
            flat[blocks[0].start : blocks[-1].stop].copy_(values)
        else:
            for block in fresh:
                flat[block.start : block.stop].copy_(part_of(values, blocks, block))
        self._outstanding.difference_update(block.index for block in fresh)
