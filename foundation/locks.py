"""Locks that the system drops by itself when their holder dies, however it dies.

The lock file holds the holder's process number, for messages and for whoever wants to signal it. Whether anybody holds
the lock is asked of the system, so that a number left behind by the dead means nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.files import PRIVATE, open_ordinary, write_at

if TYPE_CHECKING:
    from typing_extensions import Self

_NO_FOLDER_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.EISDIR})
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.05
"""Whoever only asks for the holder (`lock_holder`) has the lock for an instant; that is no holder."""


class LockHeld(Exception):
    """A living process holds the lock; `holder` is its process number, None where the file does not say it."""

    def __init__(self, path: Path, holder: int | None) -> None:
        super().__init__(f"{path} is held by process {holder or 'unknown'}")
        self.holder = holder


class FileLock:
    """A lock of one process on one file, which is made where there is none; held until `release`.

    Children do not inherit it, or one that lingers would hold its parent's lock.

    Args:
        below: a folder above it, from which on no folder may be a link; see `open_ordinary`.

    Raises:
        LockHeld: another living process, or another lock of this one, has it.
        OSError: the file cannot be made or opened.
    """

    def __init__(
        self,
        path: Path,
        mode: int = PRIVATE,
        sleep: Callable[[float], None] = time.sleep,
        below: Path | None = None,
    ) -> None:
        self._file = open_ordinary(path, os.O_RDWR | os.O_CREAT, mode, below=below)
        try:
            _take(self._file, path, sleep)
            os.ftruncate(self._file, 0)
            with contextlib.suppress(OSError):  # a full disk: the lock holds, and nobody learns by whom
                write_at(self._file, 0, (f"{os.getpid()}\n".encode(),))
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give it back; once is enough."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


class FolderLock:
    """A lock of one process on a folder itself, which no removed lock file undoes; held until `release`.

    File systems that lock no folders (NFS among them) leave it to a `FileLock` in the folder: `taken` is False then.

    Raises:
        LockHeld: another living process, or another lock of this one, has it; its number is not known.
        OSError: the folder cannot be opened.
    """

    def __init__(self, path: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.taken = True
        try:
            _take(self._folder, path, sleep)
        except OSError as error:
            if error.errno not in _NO_FOLDER_LOCKS:
                os.close(self._folder)
                raise
            self.taken = False
        except BaseException:
            os.close(self._folder)
            raise

    def release(self) -> None:
        """Give it back; once is enough."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def lock_holder(path: Path, below: Path | None = None) -> int | None:
    """The process number of a lock's living holder; None if there is none, or no such file.

    Args:
        below: as for `FileLock`.

    Raises:
        OSError: it cannot be asked for.
    """
    try:
        file = open_ordinary(path, os.O_RDWR, below=below)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _number_in(file)
    else:
        return None
    finally:
        os.close(file)


def _take(file: int, path: Path, sleep: Callable[[float], None]) -> None:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise LockHeld(path, _number_in(file)) from error
            sleep(_BETWEEN_TRIES_SECONDS)
        else:
            return


def _number_in(file: int) -> int | None:
    try:
        text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    except IsADirectoryError:
        return None
    return int(text) if text.isdigit() else None
