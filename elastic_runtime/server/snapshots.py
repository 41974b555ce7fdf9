"""Copies of blocks for a checkpoint, taken while training goes on: each block just before its next step is applied.

A parameter server that has nothing else to do takes copies too, so that a job that stands still (suspended, or at its
end) gets its checkpoint as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from elastic_runtime.block_state import BlockState
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
        open_sink: makes the sink for some blocks of the checkpoint of a step.
    """

    def __init__(self, open_sink: Callable[[int, Iterable[int]], ShardSink]) -> None:
        self._open_sink = open_sink
        self._due: dict[int, dict[int, int]] = {}
        self._sinks: dict[int, ShardSink] = {}
        self._newest = -1

    def start(self) -> None:
        """A generation begins: what was not finished in the one before never will be."""
        self._due.clear()
        self._sinks.clear()
        self._newest = -1

    def request(self, step: int, due: Mapping[int, int]) -> None:
        """Copy these blocks (block → version) for the checkpoint of a step; asked again, nothing happens."""
        if step <= self._newest:
            return
        self._newest = step
        self._sinks[step] = self._open_sink(step, tuple(due))
        self._due[step] = dict(due)
        self._close_if_done(step)

    @property
    def pending(self) -> bool:
        """Whether blocks are still to be copied."""
        return bool(self._due)

    def before_apply(self, store: BlockStore, blocks: Iterable[int]) -> None:
        """These blocks are about to change."""
        if self._due:
            for step in tuple(self._due):
                self._take(store, step, [block for block in blocks if block in self._due[step]])

    def idle(self, store: BlockStore) -> None:
        """Nothing else is to be done: copy a few blocks."""
        for step, due in tuple(self._due.items()):
            here = [block for block, version in due.items() if block in store.owned and store.version(block) >= version]
            self._take(store, step, here[:_IDLE_BLOCKS])

    def _take(self, store: BlockStore, step: int, blocks: Iterable[int]) -> None:
        due = self._due[step]
        for block in blocks:
            version = store.version(block)
            if version < due[block]:
                continue
            if version > due[block]:
                raise AssertionError(f"block {block} is at {version}, and was to be copied at {due[block]}")
            self._sinks[step].add(store.snapshot(block))
            del due[block]
        self._close_if_done(step)

    def _close_if_done(self, step: int) -> None:
        if not self._due[step]:
            del self._due[step]
            self._sinks.pop(step).close()
