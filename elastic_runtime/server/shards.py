"""A server's part of checkpoints: blocks go to writers in the background, finished shards to the coordinator."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from elastic_runtime.checkpoint import Place, ShardWriter, folder_of
from elastic_runtime.control.messages import Shard
from elastic_runtime.errors import CheckpointError
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import Optimizer

_log = structlog.get_logger()
_KEPT = 4
"""Reported shards of this many newest checkpoints; the coordinator has long taken the older ones."""


class ShardInWork:
    """One checkpoint's shard; one that fails is given up, and the coordinator gives up the checkpoint."""

    def __init__(self, writer: ShardWriter | None, change: int, step: int) -> None:
        self._writer = writer
        self.change = change
        self.step = step

    def add(self, state: BlockState) -> None:
        """Hand a block over; a disk that is too slow is waited for."""
        if self._writer is None:
            return
        try:
            self._writer.add(state)
        except CheckpointError as error:
            self._give_up(error)

    def close(self) -> None:
        """All blocks were handed over."""
        if self._writer is not None:
            self._writer.close()

    def result(self) -> Shard | None:
        """The shard once it is on the disk; None before, and if it never will be."""
        if self._writer is None or not self._writer.ended:
            return None
        try:
            record = self._writer.finish()
        except CheckpointError as error:
            self._give_up(error)
            return None
        return Shard(record.name, self.step, record.size_bytes, record.sha256, self.change)

    @property
    def failed(self) -> bool:
        """Nothing more will come of it."""
        return self._writer is None

    def abort(self) -> None:
        """Give it up; what is not finished is removed."""
        if self._writer is not None:
            self._writer.abort()

    def _give_up(self, error: CheckpointError) -> None:
        _log.error("checkpoint-shard-failed", step=self.step, error=str(error))
        self._writer = None


class Shards:
    """All shards that this server writes.

    Args:
        folder: of the job's checkpoints.
        server: this task.
        layout: the model's.
        optimizer: the job's.
    """

    def __init__(self, folder: Place, server: str, layout: Layout, optimizer: Optimizer) -> None:
        self._folder, self._server, self._layout, self._optimizer = folder, server, layout, optimizer
        self._working: list[ShardInWork] = []
        self._done: list[Shard] = []

    def open(self, change: int, step: int, blocks: Iterable[int]) -> ShardInWork:
        """Begin the shard of a change's checkpoint, at a step."""
        try:
            folder = folder_of(self._folder, step)
            writer = ShardWriter(folder, self._server, self._layout, self._optimizer, blocks)
        except CheckpointError as error:
            _log.error("checkpoint-shard-failed", step=step, error=str(error))
            return ShardInWork(None, change, step)
        shard = ShardInWork(writer, change, step)
        self._working.append(shard)
        return shard

    def take_finished(self) -> tuple[Shard, ...] | None:
        """The newest shards, if there is a new one since the last call."""
        new = [shard for work in self._working if (shard := work.result()) is not None]
        self._working = [w for w in self._working if not w.failed and w.change not in {shard.change for shard in new}]
        self._done = [*self._done, *new][-_KEPT:]
        return tuple(self._done) if new else None

    @property
    def busy(self) -> bool:
        """Whether a shard is still being written."""
        return bool(self._working)

    def start(self) -> None:
        """A generation begins: what was written in the one before is not of its steps, even where their numbers are."""
        self.abort()
        self._done.clear()

    def abort(self) -> None:
        """Give up whatever is not finished."""
        for work in self._working:
            work.abort()
        self._working.clear()
