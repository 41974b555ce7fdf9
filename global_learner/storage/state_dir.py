"""The state directory: the lock of the one learner that uses it, and where everything lies in it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import structlog

from foundation.locks import FileLock, FolderLock, LockHeld, lock_holder
from global_learner.errors import StateUnusable
from global_learner.postgres.lease import Lease
from global_learner.storage.commits import Commits, Losses
from global_learner.storage.databases import SharedDatabase

_log = structlog.get_logger()

IDENTITY_FOLDER = "identity"
"""Of the authority's files, the administrator's, and the identities that were given out."""


_SECRETS = (".key", ".pem")
"""Files that a start refuses where others may read them: closing them would hide that somebody may have a copy."""


def _keep_private(path: Path) -> bool:
    """Take from others what they may do in a folder or with a file: it is the fleet's state; whether that was needed.

    Raises:
        OSError: it is this user's, and the system refuses.
    """
    found = path.lstat().st_mode
    mode = stat.S_IMODE(found)
    if not mode & 0o077 or not (stat.S_ISDIR(found) or stat.S_ISREG(found)):
        return False
    try:
        path.chmod(mode & 0o700)
    except PermissionError:
        advice = "it is another user's: let its owner take all rights from others, chmod go="
        _log.warning("state-dir-exposed", path=str(path), mode=oct(mode), advice=advice)
    return True


def _keep_all_private(folder: Path) -> None:
    """The same for whatever an earlier program left in a state directory."""
    exposed = 0
    for where, folders, names in os.walk(folder):
        closed = [name for name in names if not name.endswith(_SECRETS)]
        exposed += sum(_keep_private(Path(where) / name) for name in (*folders, *closed))
    if exposed:
        _log.info("state-dir-closed", folder=str(folder), files=exposed, meaning="only this user may read them now")


class StateDir:
    """A locked state directory; the lock ends with the process, however it ends.

    The lock is on the directory itself, so that nobody who removes a file lets a second learner in; and on the file
    `lock`, which says whose it is, and holds where a file system locks no directories.
    """

    def __init__(self, path: Path, losses: Losses = Losses.REFUSE, lease: Lease | None = None) -> None:
        """Create the folders where there are none, and take the lock.

        Args:
            losses: whether what is lost is refused, or noted in `commits.losses`.
            lease: that protects it in place of the lock, which a frozen learner would not let go of; None: none does.

        Raises:
            StateUnusable: not a writable directory, or another learner holds it.
        """
        self.path = path
        self.lease = lease
        self.log = path / "log"
        self.snapshots = path / "snapshots"
        self.receipts = path / "receipts"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _keep_private(path.resolve())  # what a link says of itself protects nothing
            for folder in (self.log, self.snapshots, self.receipts):
                folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.ExitStack() as taken:
                if lease is None:
                    folder_lock = FolderLock(path)
                    taken.callback(folder_lock.release)
                    file_lock = FileLock(path / "lock", mode=0o600)
                    taken.callback(file_lock.release)
                if losses is not Losses.LIST:
                    _keep_all_private(path)
                self.commits = Commits(path, losses, afresh=lease is not None)
                taken.callback(self.commits.close)
                self.shared: SharedDatabase | None = None
                self._taken = taken.pop_all()
        except OSError as error:
            raise StateUnusable(
                f"state_dir {path}: cannot be used ({error.strerror}); name a directory that can be written"
            ) from error
        except LockHeld as error:
            raise StateUnusable(
                f"state_dir {path}: held by another learner (process {_holder(path, error)}); end it, or use "
                "another state_dir"
            ) from error

    def cutting(self) -> FolderLock | None:
        """The right to take segments from the log, to be released; None while a backup copies it.

        Raises:
            OSError: the folder cannot be opened.
        """
        try:
            return FolderLock(self.log, sleep=lambda _: None)
        except LockHeld:
            return None

    def close(self) -> None:
        """Let go of the directory."""
        self._taken.close()

    def __enter__(self) -> StateDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _holder(path: Path, error: LockHeld) -> int | str:
    with contextlib.suppress(OSError):
        return error.holder or lock_holder(path / "lock") or "unknown"
    return "unknown"
