"""Copies of blocks for a checkpoint, taken while training goes on: each block just before its next step is applied.

A parameter server that has nothing else to do takes copies too, so that a job that stands still (suspended, or at its
end) gets its checkpoint as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from elastic_runtime.model.block_state import BlockState
from elastic_runtime.server.store import BlockStore

_IDLE_BLOCKS = 4
"""Copied at once when nothing comes: a few milliseconds, for which a message may have to wait."""


class ShardSink(Protocol):
    """Where the copies of one checkpoint go."""

    def add(self, state: BlockState) -> None:
        """A copy of a block."""
        ...

    def close(self) -> None:
        """That was the last one."""
        ...


class Snapshots:
    """The checkpoints that one PS has to write parts of.

    Args:
        open_sink: makes the sink for the checkpoint of a change, at a step, with some blocks.
    """

    def __init__(self, open_sink: Callable[[int, int, Iterable[int]], ShardSink]) -> None:
        self._open_sink = open_sink
        self._due: dict[int, dict[int, int]] = {}
        self._sinks: dict[int, ShardSink] = {}
        self._newest = -1

    def start(self) -> None:
        """Begin a generation: unfinished checkpoints of the one before are dropped."""
        self._due.clear()
        self._sinks.clear()
        self._newest = -1

    def request(self, change: int, step: int, due: Mapping[int, int]) -> None:
        """Copy these blocks (block → version) for the checkpoint of a change, at a step; asked again, nothing happens.

        Another change may ask for a checkpoint of the same step, once other servers own blocks.
        """
        if change <= self._newest:
            return
        self._newest = change
        self._sinks[change] = self._open_sink(change, step, tuple(due))
        self._due[change] = dict(due)
        self._close_if_done(change)

    def before_apply(self, store: BlockStore, blocks: Iterable[int]) -> None:
        """These blocks are about to change."""
        if self._due:
            for change in tuple(self._due):
                self._take(store, change, [block for block in blocks if block in self._due[change]])

    def idle(self, store: BlockStore) -> None:
        """Nothing else is to be done: copy a few blocks."""
        for change, due in tuple(self._due.items()):
            here = [block for block, version in due.items() if block in store.owned and store.version(block) >= version]
            self._take(store, change, here[:_IDLE_BLOCKS])

    def _take(self, store: BlockStore, change: int, blocks: Iterable[int]) -> None:
        due = self._due[change]
        for block in blocks:
            version = store.version(block)
            if version < due[block]:
                continue
            if version > due[block]:
                raise AssertionError(f"block {block} is at {version}, and was to be copied at {due[block]}")
            self._sinks[change].add(store.snapshot(block))
            del due[block]
        self._close_if_done(change)

    def _close_if_done(self, change: int) -> None:
        if not self._due[change]:
            del self._due[change]
            self._sinks.pop(change).close()
