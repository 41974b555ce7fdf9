"""File that one server's shard is written to, until it has its name: in its folder, or on its way to an object store.

A shard's head is known last and comes first, and an object is written from its first byte to its last: what goes to a
store is written to a temporary file before.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from elastic_runtime.checkpoint.object_store import Place, StorePath
from elastic_runtime.checkpoint.shard import SUFFIX
from foundation.files import PARTIAL, make_durable_folder, sync_folder


class ShardFile(Protocol):
    """A file that has no name yet.

    Attributes:
        descriptor: to write to; closed by whoever made the file.
    """

    descriptor: int

    @property
    def place(self) -> Place:
        """Where it will be, under a name that none had before."""
        ...

    def publish(self) -> Future[None] | None:
        """Give what was written its name; None: it has it, durably.

        Raises:
            OSError: it cannot be, as the future says too.
        """
        ...

    def clear(self) -> None:
        """Remove what there is, but for what has its name; a store may still give it that."""
        ...


def new_shard_file(folder: Place, name: str) -> ShardFile:
    """Make a file for a shard.

    Args:
        folder: of the checkpoint.
        name: the server's.

    Raises:
        OSError: it cannot be made.
    """
    return _InFolder(folder, name) if isinstance(folder, Path) else _ForStore(folder, name)


class _InFolder:
    def __init__(self, folder: Path, name: str) -> None:
        make_durable_folder(folder)
        self.descriptor, self.place = _new_file(folder, name)
        self._partial = self.place.with_name(self.place.name + PARTIAL)

    def publish(self) -> None:
        os.fsync(self.descriptor)
        self._partial.replace(self.place)
        sync_folder(self.place.parent)

    def clear(self) -> None:
        with suppress(OSError):  # the error that led here is the one to tell
            self._partial.unlink(missing_ok=True)
            self._partial.parent.rmdir()  # only if no other server's shard is there


class _ForStore:
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
