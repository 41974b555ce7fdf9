"""Group commit: many updates in flight share one fsync, and none is acknowledged before it.

The event loop only queues. One flush at a time runs in a thread: it takes all that is queued, writes it, syncs it, and
then everybody who waited for a step up to there goes on. While a flush runs the next group gathers, so that a slow disk
makes groups larger and not the learner slower. A failed write breaks the writer for good: what is in the page cache
after a failed fsync is unknown, so the process must stop and recover from what is on disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from global_learner.errors import LogBroken
from global_learner.update_log import AppliedUpdate, encode, segment_header, segment_name


@dataclass(frozen=True, slots=True)
class _NewSegment:
    """In the queue: what follows goes into a segment of its own."""

    first_step: int


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LogWriter:
    """Appends to the newest segment; create, `start`, use and `close` it on one event loop."""

    def __init__(
        self,
        folder: Path,
        spec_digest: str,
        durable_step: int,
        failed: Callable[[BaseException], None],
        sync: Callable[[int], None] = os.fsync,
        on_flush: Callable[[int, int], None] = lambda _updates, _size_bytes: None,
    ) -> None:
        """Args: `durable_step` is on disk already, the log goes on after it; `failed` is called once if a write fails;
        `on_flush` is told each group's updates and bytes, on the log's thread.
        """
        self._folder = folder
        self._spec_digest = spec_digest
        self._failed = failed
        self._sync = sync
        self._on_flush = on_flush
        self._durable_step = durable_step
        self._stream: BinaryIO | None = None
        self._queue: list[AppliedUpdate | _NewSegment] = [_NewSegment(durable_step + 1)]
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._broken: LogBroken | None = None
        self._closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update-log")
        self._task: asyncio.Task[None] | None = None

    @property
    def durable_step(self) -> int:
        """All updates up to this step are on disk."""
        return self._durable_step

    @property
    def broken(self) -> LogBroken | None:
        """Why nothing can be written any more, or None."""
        return self._broken

    def start(self) -> None:
        """Begin to flush."""
        self._wake.set()
        self._task = asyncio.create_task(self._flush_groups(), name="update-log")

    def append(self, applied: AppliedUpdate) -> None:
        """Queue an update; `durable` says when it is kept.

        Raises:
            LogBroken: an earlier write failed.
        """
        if self._broken is not None:
            raise self._broken
        self._queue.append(applied)
        self._wake.set()

    def new_segment(self, first_step: int) -> None:
        """What is appended from now on goes into another file, so that the older ones can be cut."""
        self._queue.append(_NewSegment(first_step))
        self._wake.set()

    async def durable(self, step: int) -> None:
        """Wait until all updates up to `step` are on disk.

        Raises:
            LogBroken: they will never be.
        """
        if self._broken is not None:
            raise self._broken
        if step > self._durable_step:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((step, future))
            await future

    async def close(self) -> None:
        """Flush what is queued and close the file."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _flush_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._closing and not self._queue) and self._broken is None:
            await self._wake.wait()
            self._wake.clear()
            group, self._queue = self._queue, []
            try:
                step = await loop.run_in_executor(self._thread, self._write, group)
            except Exception as error:  # whatever it was, what is on disk is now unknown
                self._break(error)
            else:
                self._durable_step = max(self._durable_step, step)
                self._release()
        if self._stream is not None:
            self._stream.close()

    def _write(self, group: list[AppliedUpdate | _NewSegment]) -> int:
        """In the thread: write and sync a group; the last step that is now on disk."""
        step = updates = size = 0
        for entry in group:
            if isinstance(entry, _NewSegment):
                self._open(entry.first_step)
            else:
                for part in encode(entry):
                    size += self._file.write(part)
                step = entry.step
                updates += 1
        self._file.flush()
        self._sync(self._file.fileno())
        if updates:
            self._on_flush(updates, size)
        return step

    @property
    def _file(self) -> BinaryIO:
        if self._stream is None:
            raise LogBroken("the update log has no open segment")
        return self._stream

    def _open(self, first_step: int) -> None:
        if self._stream is not None:
            self._stream.flush()
            self._sync(self._stream.fileno())
            self._stream.close()
        self._stream = (self._folder / segment_name(first_step)).open("wb")
        self._stream.write(segment_header(self._spec_digest, first_step))
        self._sync(self._stream.fileno())
        sync_folder(self._folder)

    def _release(self) -> None:
        still = []
        for step, future in self._waiting:
            if step <= self._durable_step:
                if not future.done():
                    future.set_result(None)
            else:
                still.append((step, future))
        self._waiting = still

    def _break(self, error: Exception) -> None:
        self._broken = LogBroken(
            f"{self._folder}: the update log cannot be written ({error}); free space or mend the "
            "disk, then start again: everything acknowledged is kept"
        )
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(self._broken)
        self._waiting.clear()
        self._failed(self._broken)
