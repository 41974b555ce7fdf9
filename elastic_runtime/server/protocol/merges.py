"""Buffers with two holders: the owner merges what workers sent, and the other holder takes what came out.

A slice's gradient is the same whoever computes it, so both holders sum what comes to each. Running statistics are each
worker's own. If a worker dies when it has sent them to one holder, its substitute sends others to the other one; both
holders would be right, and different until the next merge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.block_runs import Payload, flat_view, run_of
from elastic_runtime.protocol.messages import Outgoing, Pull, Values, runs_of
from elastic_runtime.server.protocol.block_table import BlockBook


class Merges:
    """Which merges are left to others, in one generation.

    Args:
        book: what holds.
    """

    def __init__(self, book: BlockBook) -> None:
        self._book = book

    def left_to_owner(self, block: int, step: int) -> bool:
        """Whether another server merges the block; once that one is lost, this server is the owner."""
        return block in self._book.buffers and self._book.plans.at(step).replica(block) == self._book.name

    def ask(self, steps: Iterable[tuple[int, int]]) -> list[Outgoing]:
        """Ask owners for blocks, each as it is after a step; whoever has not come so far answers then."""
        asked: dict[tuple[str, int], list[int]] = defaultdict(list)
        for block, step in steps:
            asked[self._book.plans.at(step).owners[block], step].append(block)
        return [
            (owner, Pull(self._book.generation, step + 1, runs_of(sorted(some))))
            for (owner, step), some in asked.items()
        ]

    def read(self, peer: str, header: Values, payload: Payload) -> dict[int, torch.Tensor]:
        """The blocks in a message of their owner, where this server has left their merge to it.

        Raises:
            ProtocolError: it is a message for workers.
        """
        book, step = self._book, header.version - 1
        blocks = run_of(book.layout.blocks, header.first, header.count)
        if any(block.index not in book.buffers for block in blocks) or len(payload) != 1:
            raise ProtocolError(f"{peer} sent values that only workers get")
        if step < book.plans.start_step:
            return {}
        values = flat_view(payload, 0, book.layout.segments[blocks[0].segment], blocks)
        return {
            block.index: values[block.start - blocks[0].start : block.stop - blocks[0].start]
            for block in blocks
            if self.left_to_owner(block.index, step) and peer == book.plans.at(step).owners[block.index]
        }
