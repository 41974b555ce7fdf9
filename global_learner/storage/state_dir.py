"""The state directory: the lock of the one learner that uses it, and where everything lies in it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from foundation.locks import FileLock, LockHeld
from global_learner.errors import StateUnusable

IDENTITY_FOLDER = "identity"
"""Of the authority's files, the administrator's, and the identities that were given out."""


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
            self._lock = FileLock(path / "lock", mode=0o666)
        except OSError as error:
            raise StateUnusable(
                f"state_dir {path}: cannot be used ({error.strerror}); name a directory that can be written"
            ) from error
        except LockHeld as error:
            raise StateUnusable(
                f"state_dir {path}: held by another learner (process {error.holder or 'unknown'}); end it, or use "
                "another state_dir"
            ) from error

    def close(self) -> None:
        """Let go of the directory."""
        self._lock.release()

    def __enter__(self) -> StateDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
