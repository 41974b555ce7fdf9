"""Group commit of the update log: many updates in flight share one sync, and none is acknowledged before it.

The event loop only queues. One flush at a time runs in a thread: it takes all that is queued, writes it, syncs it, and
then everybody who waited for a step up to there goes on. While a flush runs the next group gathers, so that a slow disk
makes groups larger and not the learner slower.

A full disk is waited for: nothing more is taken, whoever waits is told, and the group is written again from its
beginning until it is kept. Any other failed write breaks the writer for good: what is in the page cache after a failed
sync is unknown, so the process must stop and recover from what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from foundation.files import PRIVATE, Buffer, sync_folder, write_at
from global_learner.errors import DiskFull, LeaseLost, LogBroken, NotActive, NotNow
from global_learner.postgres.lease import Lease
from global_learner.storage.commits import LOG, Commits
from global_learner.storage.disk import RETRY_SECONDS, is_disk_full
from global_learner.storage.update_log import segment_header, segment_name
from global_learner.storage.update_records import AppliedUpdate, encode

_log = structlog.get_logger()

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


# Files that the log's segments are written to: one whose segment was cut is written over rather than removed.
#
# Freeing the blocks of a large file keeps the file system busy, and whoever waits for a sync meanwhile waits for that
# too. A file that is written over keeps its blocks: a sync then writes data and nothing else. Behind its newest record
# stands what is left of its former life: records of older steps, at which a reader stops. For that, files are reused
# only within one life of the learner, in which steps only grow.

SPARES = 2
"""Files kept to be written over; a learner at full load has as many segments more than an idle one."""


class SegmentFiles:
    """The files of one log folder, beginning with the segments that are there; may be used from several threads.

    Raises of all methods:
        OSError: the disk refused.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._named = 0
        self._spares: list[Path] = []
        for path in folder.glob("spare-*.log"):  # of an earlier life
            path.unlink()
        self._sizes = {path: path.stat().st_size for path in folder.glob("updates-*.log")}

    @property
    def size_bytes(self) -> int:
        """What all files take, spares too."""
        with self._lock:
            return sum(self._sizes.values())

    def open(self, first_step: int, header: bytes, sync: Callable[[int], None]) -> int:
        """A segment's file with its header in it, its name and its header on disk; the descriptor."""
        path = self._folder / segment_name(first_step)
        with self._lock:
            spare = self._spares.pop() if self._spares else None
        # Until it has its header, a file must not have the name of a segment.
        blank = spare or self._next_spare()
        descriptor = os.open(blank, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            os.pwrite(descriptor, header, 0)
            sync(descriptor)
            blank.rename(path)
            sync_folder(self._folder)
        except BaseException:
            os.close(descriptor)
            self._forget(blank)
            raise
        with self._lock:
            self._sizes[path] = self._sizes.pop(blank, len(header))
        return descriptor

    def grew(self, first_step: int, size_bytes: int) -> None:
        """Note that a segment was written up to here."""
        path = self._folder / segment_name(first_step)
        with self._lock:
            self._sizes[path] = max(self._sizes.get(path, 0), size_bytes)

    def cut(self, path: Path) -> None:
        """Keep the file of a segment that nobody needs any more as a spare, or remove it."""
        with self._lock:
            keep = len(self._spares) < SPARES
        if not keep:
            self._forget(path)
            return
        spare = self._next_spare()
        path.rename(spare)
        # Else a power failure could leave the segment's name on a file that was written over meanwhile.
        sync_folder(self._folder)
        with self._lock:
            self._sizes[spare] = self._sizes.pop(path, 0)
            self._spares.append(spare)

    def remove_spares(self) -> None:
        """Give the disk back what is not in use."""
        with self._lock:
            spares, self._spares = self._spares, []
        for path in spares:
            self._forget(path)

    def _forget(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(path, None)

    def _next_spare(self) -> Path:
        with self._lock:
            self._named += 1
            return self._folder / f"spare-{self._named:020d}.log"


@dataclass(frozen=True, slots=True)
class _NewSegment:
    """In the queue: what follows goes into a segment of its own."""

    first_step: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log goes on.

    Attributes:
        spec_digest: of the policies whose gradients are in it.
        durable_step: all updates up to this step are on disk.
        checksum: of the record of that step, where it is known.
        commits: is told of every group that is on disk, before anybody else is.
        lease: of the active learner; None where there is but one. A group is acknowledged only if the lease still held
            when it was on disk: so whoever takes the lease next finds it there.
    """

    folder: Path
    spec_digest: str
    durable_step: int
    checksum: int = 0
    commits: Commits | None = None
    lease: Lease | None = None


class LogWriter:
    """Appends to the newest segment; create, `start`, use and `close` it on one event loop.

    Args:
        failed: is called once if a write fails.
        on_flush: is told each group's updates and bytes, on the log's thread.
        retry_seconds: how often a full disk is tried again.

    Attributes:
        durable_step: all updates up to this step are on disk.
        full: why nothing more is taken at the moment, or None.
        broken: why nothing can be written any more, or None.
        segment_bytes: what the newest segment was given of `size_bytes`.
    """

    def __init__(
        self,
        end: LogEnd,
        failed: Callable[[BaseException], None],
        sync: Callable[[int], None] = _sync_data,
        on_flush: Callable[[int, int], None] = lambda _updates, _size_bytes: None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.files = SegmentFiles(end.folder)
        self._folder = end.folder
        self._spec_digest = end.spec_digest
        self._failed = failed
        self._sync = sync
        self._on_flush = on_flush
        self.retry_seconds = retry_seconds
        self.durable_step = end.durable_step
        self._descriptor: int | None = None
        self._first_step = end.durable_step + 1
        self._end = 0
        # The log's thread alone uses these.
        self._commits = end.commits
        self._lease = end.lease
        self._checksum = end.checksum
        self._written_step = end.durable_step
        self._queue: list[AppliedUpdate | _NewSegment] = [_NewSegment(end.durable_step + 1)]
        self._queued_bytes = 0
        self.segment_bytes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self.full: NotNow | None = None
        self.broken: LogBroken | None = None
        self._closing = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update-log")
        self._task: asyncio.Task[None] | None = None

    @property
    def size_bytes(self) -> int:
        """What the log takes on disk, spare files too, once all that is queued is written."""
        return self.files.size_bytes + self._queued_bytes

    def start(self) -> None:
        """Begin to flush."""
        self._wake.set()
        self._task = asyncio.create_task(self._flush_groups(), name="update-log")

    def append(self, applied: AppliedUpdate) -> None:
        """Queue an update; `durable` says when it is kept.

        Raises:
            NotNow: the disk is full, or the lease not renewed; nothing was queued.
            LogBroken: an earlier write failed.
        """
        self._check()
        self._queue.append(applied)
        self._queued_bytes += applied.update.gradient.nbytes
        self.segment_bytes += applied.update.gradient.nbytes
        self._wake.set()

    def new_segment(self, first_step: int) -> None:
        """What is appended from now on goes into another file, so that the older ones can be cut."""
        self._queue.append(_NewSegment(first_step))
        self.segment_bytes = 0
        self._wake.set()

    async def durable(self, step: int) -> None:
        """Wait until all updates up to `step` are on disk.

        Raises:
            NotNow: not yet; they may be later.
            LogBroken: they will never be.
        """
        if step <= self.durable_step and self.broken is None:
            return
        self._check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((step, future))
        await future

    async def close(self) -> None:
        """Flush what is queued and close the file."""
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.full is not None:
            raise self.full

    async def _flush_groups(self) -> None:
        while not (self._closing.is_set() and not self._queue) and self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self.broken is None:
                await self._keep(self._next_group())
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _next_group(self) -> list[AppliedUpdate | _NewSegment]:
        """All that is queued, but of one segment only."""
        queue = self._queue
        end = next((place for place, entry in enumerate(queue) if place and isinstance(entry, _NewSegment)), len(queue))
        group, self._queue = queue[:end], queue[end:]
        return group

    async def _keep(self, group: list[AppliedUpdate | _NewSegment]) -> None:
        """Write a group until it is on disk, or the log is broken."""
        loop = asyncio.get_running_loop()
        while self.broken is None:
            try:
                step = await loop.run_in_executor(self._thread, self._write, group)
            except Exception as caught:  # whatever it was, what is on disk is now unknown
                error: Exception = caught
                if isinstance(caught, FileNotFoundError) and self._lease is not None:
                    # Who was held up amid a write finds the folder renamed: no fault of the disk.
                    error = self._lease.refusal or caught
                waits = is_disk_full(error) or (isinstance(error, NotActive) and not isinstance(error, LeaseLost))
                if not waits or self._closing.is_set():
                    self._break(error)
                    return
                await self._wait_for_space(error)
            else:
                self._kept(group, step)
                return

    def _kept(self, group: Sequence[AppliedUpdate | _NewSegment], step: int) -> None:
        if self.full is not None:
            self.full = None
            _log.warning("log-goes-on", folder=str(self._folder), durable_step=max(self.durable_step, step))
        self._queued_bytes -= sum(entry.update.gradient.nbytes for entry in group if isinstance(entry, AppliedUpdate))
        self.durable_step = max(self.durable_step, step)
        still = []
        for least, future in self._waiting:
            if least > self.durable_step:
                still.append((least, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    async def _wait_for_space(self, error: BaseException) -> None:
        if isinstance(error, NotActive):
            if self.full is None:
                _log.error("log-waits", folder=str(self._folder), durable_step=self.durable_step, reason=str(error))
            self.full = error
        elif self.full is None:
            self.full = DiskFull(
                f"{self._folder}: no room for the update log ({error}); nothing is applied until there is: free space, "
                "and send the update again"
            )
            _log.error("disk-full", folder=str(self._folder), durable_step=self.durable_step, reason=str(error))
        self._fail_waiting(self.full)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), self.retry_seconds)

    def _write(self, group: list[AppliedUpdate | _NewSegment]) -> int:
        """In the thread: write and sync a group; the last step that is now on disk, 0 if there is none in it."""
        if self._lease is not None:
            self._lease.check()
        if isinstance(group[0], _NewSegment):
            self._open(group[0].first_step)
            del group[0]
        if not group or self._descriptor is None:
            return 0
        buffers: list[Buffer] = []
        step, checksum = self._written_step, self._checksum
        for entry in group:
            if isinstance(entry, AppliedUpdate):
                record = encode(entry, checksum, self._written_step)
                buffers += (record.head, record.gradient)
                step, checksum = entry.step, record.checksum
        end = write_at(self._descriptor, self._end, buffers)
        self._sync(self._descriptor)
        if self._lease is not None:
            self._lease.check()
        if self._commits is not None:
            self._commits.committed(LOG, step, checksum)
        self._written_step, self._checksum = step, checksum
        size, self._end = end - self._end, end
        self.files.grew(self._first_step, end)
        self._on_flush(len(group), size)
        return step

    def _open(self, first_step: int) -> None:
        if self._commits is not None:
            self._commits.sync()
        header = segment_header(self._spec_digest, first_step, self._checksum)
        descriptor = self.files.open(first_step, header, self._sync)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._first_step, self._end = descriptor, first_step, len(header)

    def _fail_waiting(self, error: NotNow | LogBroken) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    def _break(self, error: BaseException) -> None:
        if isinstance(error, LeaseLost):
            self.broken = LogBroken(str(error))
        else:
            self.broken = LogBroken(
                f"{self._folder}: the update log cannot be written ({error}); free space or mend the "
                "disk, then start again: everything acknowledged is kept"
            )
        self._fail_waiting(self.broken)
        self._failed(self.broken)
