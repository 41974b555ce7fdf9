"""Writer of one server's shard: in the background, block by block, while training goes on.

The server copies a block just before the step that would change it, and hands the copy in. A thread writes and digests;
both are done by the system, outside Python's lock.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Condition, Thread

import torch

from elastic_runtime.checkpoint.object_store import Place, StorePath
from elastic_runtime.checkpoint.shard import SUFFIX, ShardEntry, ShardRecord, head_bytes, pack_head
from elastic_runtime.errors import CheckpointError
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import Optimizer
from foundation.files import PARTIAL, make_durable_folder, sync_folder, write_at

QUEUE_BYTES = 256 * 1024**2
"""Copies that may wait for the disk: twice a model of 100 MB, so that training waits for a slow disk only beyond it."""


class _InFolder:
    """File of a shard in its folder, until it has its name; the caller closes its `descriptor`."""

    def __init__(self, folder: Path, name: str) -> None:
        make_durable_folder(folder)
        self.descriptor, self.place = _new_file(folder, name)
        self._partial = self.place.with_name(self.place.name + PARTIAL)

    def publish(self) -> None:
        """Give what was written its name, durably."""
        os.fsync(self.descriptor)
        self._partial.replace(self.place)
        sync_folder(self.place.parent)

    def clear(self) -> None:
        with suppress(OSError):  # the error that led here is the one to tell
            self._partial.unlink(missing_ok=True)
            self._partial.parent.rmdir()  # only if no other server's shard is there


class _ForStore:
    """Temporary file of a shard for an object store, to which it is sent when its first bytes, the head, are known."""

    def __init__(self, folder: StorePath, name: str) -> None:
        # Random, as a predecessor of the same name may still be sending, and a store refuses no second one.
        self.place = folder / f"{name}-{secrets.token_hex(8)}{SUFFIX}"
        self.descriptor, path = tempfile.mkstemp(suffix=SUFFIX, prefix=f"{name}-")
        self._path = Path(path)

    def publish(self) -> Future[None]:
        upload = self.place.begin_upload(self._path)
        upload.add_done_callback(lambda _: self.clear())
        return upload

    def clear(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _new_file(folder: Path, name: str) -> tuple[int, Path]:
    """A file of a name not yet used: what a manifest may name, or a predecessor may still write, is never touched."""
    for attempt in count(1):
        path = folder / f"{name}{f'-{attempt}' if attempt > 1 else ''}{SUFFIX}"
        if not path.exists():
            with suppress(FileExistsError):
                partial = path.with_name(path.name + PARTIAL)
                return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), path
    raise AssertionError("numbers do not end")


class ShardWriter:
    """One shard of one checkpoint. Ends by `finish` or `abort`; after an error nothing of it is left on the disk.

    Args:
        folder: of the checkpoint; made if need be. For an object store, the shard is a temporary file (`TMPDIR`) first.
        name: of the shard, such as the server's; a number, if it is taken, and the file's ending are added.

    Raises:
        CheckpointError: the folder or file cannot be made.
    """

    def __init__(
        self,
        folder: Place,
        name: str,
        layout: Layout,
        optimizer: Optimizer,
        blocks: Iterable[int],
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._layout = layout
        self._left = set(blocks)
        self._head_bytes = head_bytes(layout, self._left, optimizer.state_names)
        self._end = self._head_bytes
        self._entries: list[ShardEntry] = []
        self._queue: deque[BlockState] = deque()
        self._queue_bytes, self._queued_bytes = queue_bytes, 0
        self._changed = Condition()
        self._closing = self._stopped = False
        self._error: CheckpointError | None = None
        self._record: ShardRecord | None = None
        try:
            self._file = _InFolder(folder, name) if isinstance(folder, Path) else _ForStore(folder, name)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be written to: {error.strerror}") from error
        self._thread = Thread(target=self._run, name=f"checkpoint-{name}", daemon=True)
        self._thread.start()

    def add(self, state: BlockState, timeout_seconds: float = 60.0) -> None:
        """Hand a block in; waits while too much is queued.

        Args:
            state: a copy that nobody changes any more. Its state may be empty at version 0.

        Raises:
            CheckpointError: the shard cannot be written, or the disk took too long.
            ValueError: a block that was not announced, or was handed in before.
        """
        if state.block not in self._left:
            raise ValueError(f"block {state.block} is not one that this shard still waits for")
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while self._error is None and self._full(state.size_bytes):
                self._wait(deadline, timeout_seconds)
            if self._error is not None:
                raise self._error
            self._left.discard(state.block)
            self._queue.append(state)
            self._queued_bytes += state.size_bytes
            self._changed.notify_all()

    def finish(self, timeout_seconds: float = 600.0) -> ShardRecord:
        """Wait until all is on the disk.

        Raises:
            CheckpointError: it cannot be written, or the disk took too long (then `abort` is still to be called).
            ValueError: blocks were announced and not handed in.
        """
        deadline = time.monotonic() + timeout_seconds
        if not self.ended:  # a disk may fill up before all blocks are handed in
            self.close()
        with self._changed:
            while self._record is None and self._error is None:
                self._wait(deadline, timeout_seconds)
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._record is not None  # noqa: S101  # the one or the other
        return self._record

    @property
    def ended(self) -> bool:
        """Whether `finish` would answer at once, with a record or an error."""
        with self._changed:
            return self._record is not None or self._error is not None

    def close(self) -> None:
        """No more blocks will come: the background may finish, for who asks `ended` in place of waiting.

        Raises:
            ValueError: blocks were announced and not handed in.
        """
        if self._left:
            raise ValueError(f"{len(self._left)} blocks were not handed in, such as block {min(self._left)}")
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Give the shard up and remove what there is of it; one that is finished stays."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _full(self, size_bytes: int) -> bool:
        """Whether so much more has to wait; what is larger than the queue goes in alone."""
        return self._queued_bytes > 0 and self._queued_bytes + size_bytes > self._queue_bytes

    def _wait(self, deadline: float, timeout_seconds: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise CheckpointError(
                f"{self._file.place}: the disk took more than {timeout_seconds:g} s; the last durable checkpoint stands"
            )
        self._changed.wait(left)

    def _run(self) -> None:
        try:
            record = self._publish() if self._write_all() else None
            error = None if record is not None else self._failure(None)
        except Exception as failure:  # told by `add` and `finish`, to the thread that asks
            record, error = None, self._failure(failure)
            error.__cause__ = failure
        os.close(self._file.descriptor)
        if error is not None:
            self._file.clear()
        with self._changed:
            self._record, self._error = record, error
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()

    def _write_all(self) -> bool:
        """Whether all blocks came, rather than `abort`."""
        while True:
            with self._changed:
                while not self._queue and not self._closing and not self._stopped:
                    self._changed.wait()
                if self._stopped or not self._queue:
                    return not self._stopped
                state = self._queue.popleft()
            self._write(state)
            with self._changed:
                self._queued_bytes -= state.size_bytes
                self._changed.notify_all()

    def _write(self, state: BlockState) -> None:
        names = tuple(state.state)
        digest = hashlib.sha256()
        end = self._end
        for tensor in (state.parameters, *state.state.values()):
            numbers = memoryview(tensor.contiguous().view(torch.uint8).numpy())  # type: ignore[arg-type]  # a buffer
            digest.update(numbers)
            end = write_at(self._file.descriptor, end, (numbers,))
        entry = ShardEntry(state.block, state.version, digest.hexdigest(), self._end - self._head_bytes, names)
        self._entries.append(entry)
        self._end = end

    def _publish(self) -> ShardRecord | None:
        """Give the shard its name; None: it was given up on its way to a store."""
        head = pack_head(self._layout, self._entries, self._head_bytes)
        write_at(self._file.descriptor, 0, (head,))
        sending = self._file.publish()
        if sending is not None:
            sending.add_done_callback(lambda _: self._wake())
            with self._changed:
                while not sending.done() and not self._stopped:
                    self._changed.wait()  # it ends by a deadline of its own
            if not sending.done():
                return None
            sending.result()
        return ShardRecord(self._file.place.name, self._end, hashlib.sha256(head).hexdigest())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _failure(self, error: Exception | None) -> CheckpointError:
        why = getattr(error, "strerror", None) or (f"{type(error).__name__}: {error}" if error else "it was given up")
        return CheckpointError(
            f"{self._file.place} cannot be written: {why}; training goes on, and the last durable checkpoint stands"
        )
