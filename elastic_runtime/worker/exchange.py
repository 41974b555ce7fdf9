"""What a worker sends and expects in one step: no sockets, no threads, no clock.

At step t it pushes the gradients of its slices to the blocks' owners, and has finished when every block has come back
as it is after the step. The values are put into the staging bank, block by block; the model computes with the old ones
until all are there, so that a slice of the same step can still be computed in place of a worker that died.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import torch

from elastic_runtime.errors import ProtocolError
from elastic_runtime.layout import Block, Kind, Layout, runs
from elastic_runtime.merging import MergeRule
from elastic_runtime.message_memory import Payload, flat_view, run_of
from elastic_runtime.messages import RUN_BYTES, Header, Missing, Pull, Push, Values, runs_of
from elastic_runtime.plan import Timeline

Outgoing = tuple[str, Header]


class Banks(Protocol):
    """A worker's flat memory, as `FlatModel` has it."""

    def staging(self, segment: int) -> torch.Tensor:
        """The flat values of a segment of parameters after the step in hand."""
        ...

    def buffers(self, segment: int) -> torch.Tensor:
        """The flat values of a segment of buffers."""
        ...


class Exchange:
    """One worker's part in the protocol, for one generation after the other.

    Args:
        name: the task's.
        layout: the model's.
        banks: where values go.
        merge_steps: see `MergeRule`.
        total_steps: of the job.
    """

    def __init__(self, name: str, layout: Layout, banks: Banks, merge_steps: int, total_steps: int) -> None:
        self.name = name
        self.generation = 0
        self.version = 0
        self.dropped: Counter[str] = Counter()
        self._layout = layout
        self._banks = banks
        self._merge = MergeRule(merge_steps, total_steps)
        self._buffers = frozenset(b.index for b in layout.blocks if layout.segments[b.segment].kind is Kind.BUFFER)
        self._timeline: Timeline | None = None
        self._outstanding: set[int] = set()
        self._pushed: set[int] = set()
        self._entering = True

    @property
    def _plans(self) -> Timeline:
        if self._timeline is None:
            raise RuntimeError("no view has come yet")
        return self._timeline

    def follow(self, timeline: Timeline) -> None:
        """Use this timeline from now on; of the same generation, or of the one that `start` is called for next."""
        self._timeline = timeline

    def start(self, timeline: Timeline, version: int) -> list[Outgoing]:
        """Ask for every block at `version`: a generation begins, or this worker joins at that step."""
        self._timeline = timeline
        self.generation = timeline.generation
        self.version = version
        self._merge = replace(self._merge, start_step=timeline.start_step)
        self._outstanding = set(range(len(self._layout.blocks)))
        self._pushed.clear()
        self._entering = True
        return self.ask()

    def begin(self, step: int) -> None:
        """Begin a step: from now on its values are expected."""
        self.version = step + 1
        merges = self._merge.merges(step)
        self._outstanding = {b.index for b in self._layout.blocks if merges or b.index not in self._buffers}
        self._pushed.clear()
        self._entering = False

    def push(self, slice_index: int) -> list[Outgoing]:
        """The gradients of a slice of the step lie in their bank: send them.

        Also of a slice without samples nothing is sent; do not call it for one.
        """
        self._pushed.add(slice_index)
        return self._pushes(slice_index, sorted(self._expected_blocks()))

    @property
    def pushed(self) -> frozenset[int]:
        """The slices of this step that were pushed."""
        return frozenset(self._pushed)

    @property
    def merges_buffers(self) -> bool:
        """Whether the step in hand merges the buffers."""
        return self._merge.merges(self.version - 1)

    @property
    def complete(self) -> bool:
        """All blocks are there."""
        return not self._outstanding

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        if header.generation != self.generation:
            self.dropped["other generation"] += 1
            return []
        match header:
            case Values():
                self._values(header, payload)
                return []
            case Missing(step=step, slice=index):
                if step != self.version - 1 or index not in self._pushed:
                    return []
                blocks = [block for first, count in header.runs for block in range(first, first + count)]
                return self._pushes(index, [block for block in blocks if block < len(self._layout.blocks)])
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only parameter servers get")

    def ask(self) -> list[Outgoing]:
        """Ask the owners for everything that is outstanding; they answer also what they lack."""
        by_owner: dict[str, list[int]] = defaultdict(list)
        for block in sorted(self._outstanding):
            for owner in self._owners(block):
                by_owner[owner].append(block)
        return [(owner, Pull(self.generation, self.version, runs_of(blocks))) for owner, blocks in by_owner.items()]

    def owners_waited_for(self) -> frozenset[str]:
        """The parameter servers from which blocks are outstanding."""
        return frozenset(owner for block in self._outstanding for owner in self._owners(block))

    def part(self, header: Push) -> tuple[int, int, int]:
        """The memory that goes with a push: segment, first element, last element + 1."""
        blocks = self._layout.blocks[header.first : header.first + header.count]
        return blocks[0].segment, blocks[0].start, blocks[-1].stop

    def _pushes(self, slice_index: int, blocks: Iterable[int]) -> list[Outgoing]:
        step = self.version - 1
        plan = self._plans.at(step)
        by_owner: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            by_owner[plan.owners[block]].append(self._layout.blocks[block])
        return [
            (owner, Push(self.generation, step, slice_index, plan.after, run.first_block, run.blocks))
            for owner, owned in by_owner.items()
            for run in runs(owned, RUN_BYTES)
        ]

    def _expected_blocks(self) -> set[int]:
        merges = self.merges_buffers
        return {b.index for b in self._layout.blocks if merges or b.index not in self._buffers}

    def _owners(self, block: int) -> set[str]:
        """Who is asked: the owner at the step to come, and the one that applies the step in hand."""
        owners = {self._plans.at(self.version).owners[block]}
        return owners if self._entering else owners | {self._plans.at(self.version - 1).owners[block]}

    def _values(self, header: Values, payload: Payload) -> None:
        blocks = run_of(self._layout.blocks, header.first, header.count)
        segment = self._layout.segments[blocks[0].segment]
        if len(payload) != 1:
            raise ProtocolError(f"values came in {len(payload)} parts")
        values = flat_view(payload, 0, segment, blocks)
        wanted = self._merge.due(self.version, buffer=segment.kind is Kind.BUFFER)
        fresh = [block for block in blocks if block.index in self._outstanding]
        # Later than wanted: the job went on without this worker, which leaves as soon as its last step is applied.
        if header.version < wanted or not fresh:
            self.dropped["old values"] += 1
            return
        target = self._banks.buffers if segment.kind is Kind.BUFFER else self._banks.staging
        if len(fresh) == len(blocks):
            target(segment.index)[blocks[0].start : blocks[-1].stop].copy_(values)
        else:
            for block in fresh:
                piece = values[block.start - blocks[0].start : block.stop - blocks[0].start]
                target(segment.index)[block.start : block.stop].copy_(piece)
        self._outstanding.difference_update(block.index for block in fresh)
