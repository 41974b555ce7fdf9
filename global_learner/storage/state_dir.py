"""The state directory: who holds it, and where everything lies in it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from global_learner.errors import StateUnusable


class StateDir:
    """A locked state directory; the lock ends with the process, however it ends."""

    def __init__(self, path: Path) -> None:
        """Create the folders where there are none, and take the lock.

        Raises:
            StateUnusable: not a writable directory, or another learner holds it.
        """
        self.path = path
        self.log = path / "log"
        self.snapshots = path / "snapshots"
        self.receipts = path / "receipts"
        try:
            for folder in (self.log, self.snapshots, self.receipts):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "lock").open("a+")
        except OSError as error:
            raise StateUnusable(
                f"state_dir {path}: cannot be used ({error.strerror}); name a directory that can be written"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise StateUnusable(
                f"state_dir {path}: held by another learner (process {holder}); end it, or use another state_dir"
            ) from error
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def close(self) -> None:
        """Let go of the directory."""
        self._lock.close()

    def __enter__(self) -> StateDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
