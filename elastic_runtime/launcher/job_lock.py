"""One launcher a job: a lock that the system drops by itself when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self

from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.errors import JobBusy

LOCK_FILE = "lock"
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.05
"""Whoever only asks for the holder has the lock for an instant; that is no holder."""


class JobLock:
    """Holds a job's folder; leaving the context, or dying, gives it back.

    The file holds the holder's process number, for messages and for `elastic-run stop`; whether anybody holds the lock
    is asked of the system, so that a number left behind by a dead launcher means nothing.

    Raises:
        JobBusy: another living launcher has it.
        BadInput: there can be no lock.
    """

    def __init__(self, folder: Path) -> None:
        self._job = folder.name
        # Not inherited by children (the default), or a task that lingers would hold its launcher's lock.
        try:
            self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            _lock(self._file)
        except BlockingIOError as error:
            holder = _number_in(self._file)
            os.close(self._file)
            raise JobBusy(
                f"job {self._job}: process {holder or 'of another elastic-run'} looks after it already; "
                f"ask it with `elastic-run status {self._job}`"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the job back; once is enough."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _lock(file: int) -> None:
    for _ in range(_TRIES - 1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_TRIES_SECONDS)
        else:
            return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder_of(folder: Path) -> int | None:
    """Process number of the launcher that looks after a job now; None if none does.

    Raises:
        BadInput: it cannot be asked for.
    """
    try:
        file = os.open(folder / LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _number_in(file)
    else:
        return None
    finally:
        os.close(file)


def _unusable(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"{folder / LOCK_FILE}: cannot be used ({error.strerror}); only the job's owner may ask it")


def _number_in(file: int) -> int | None:
    text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None
