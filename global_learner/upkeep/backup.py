"""Backup of a state directory, also of one that a learner serves: copied, read as a start reads it, then named.

The copy lies under another name until it was read: every store against every other, the audit logs' chains, every
version's file, and the log from the newest snapshot on. Whoever kills a backup leaves a folder that ends with
`.partial`, which holds a file that says so; the next backup of the same name removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import PARTIAL, sync_folder
from foundation.locks import FileLock, LockHeld
from global_learner.beliefs.belief_store import STORE as BELIEFS
from global_learner.enrollment.authority_files import AUTHORITY_KEY_FILE, read_authority
from global_learner.enrollment.identity_store import STORE as IDENTITIES
from global_learner.errors import BadLearnerConfig, LearnerError, NotCopied, StateUnusable
from global_learner.loss import read_stores
from global_learner.registry.registry import STORE as REGISTRY
from global_learner.settings import LearnerSettings
from global_learner.storage.commits import Losses
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.upkeep.places import check_places
from global_learner.upkeep.state_copy import StateCopy, make_durable, remove_traces
from policy_net.exchange.policy_file import PolicyFile

_log = structlog.get_logger()

UNFINISHED = "UNFINISHED-BACKUP"
"""In a copy that was not read yet; the process that writes it holds a lock on this."""
_DATABASES = {
    "registry.sqlite": REGISTRY,
    f"{IDENTITY_FOLDER}/identities.sqlite": IDENTITIES,
    "beliefs.sqlite": BELIEFS,
}
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup that was read holds.

    Attributes:
        head_step: updates up to this one.
        version: the newest.
        audit_lines: of both audit logs, whose chains hold.
        size_bytes: of all files.
    """

    head_step: int
    version: int
    audit_lines: int
    files: int
    size_bytes: int


def back_up(settings: LearnerSettings, initial: PolicyFile, target: Path, clock: Callable[[], float]) -> Backup:
    """Copy the state directory of a learner that runs, or does not.

    Args:
        settings: the learner's.
        initial: the policy that it began with.
        target: a folder that is not there yet, or is empty.
        clock: Unix seconds.

    Raises:
        BadConfig: there is nothing to copy, it may not be read by this user, or the target cannot be one.
        StateUnusable: the copy cannot be gone on from, and neither can what was copied.
        NotCopied: the disk refused, or another backup copies the same.
    """
    source = settings.state_dir
    check_places(source, target)
    partial = target.with_name(target.name + PARTIAL)
    with _begun(partial):
        try:
            found = _attempts(settings, initial, partial, clock)
            make_durable(partial)
            (partial / UNFINISHED).unlink()
            sync_folder(partial)
            partial.rename(target)
            sync_folder(target.parent)
        except (OSError, SQLAlchemyError, sqlite3.Error) as error:
            raise NotCopied(
                f"{source}: cannot be copied to {target} ({error}); free space or mend the disk, or name another one"
            ) from error
    return found


@contextlib.contextmanager
def _begun(partial: Path) -> Iterator[None]:
    """The folder of an unfinished backup, empty but for what says so; removed if it is still there at the end.

    Raises:
        BadConfig: something else bears its name, or it cannot be made.
        NotCopied: another backup writes there.
    """
    try:
        if partial.is_symlink() or (partial.exists() and partial.stat().st_uid != os.geteuid()):
            raise BadLearnerConfig(f"{partial}: is there, and not a folder of this user's; move it away")
        if partial.is_dir() and not (partial / UNFINISHED).exists() and any(partial.iterdir()):
            raise BadLearnerConfig(f"{partial}: is there, and no unfinished backup; move it away")
        partial.mkdir(mode=0o700, exist_ok=True)
        lock = FileLock(partial / UNFINISHED)
    except OSError as error:
        raise BadLearnerConfig(
            f"{partial}: cannot be made ({error.strerror}); name a folder that can be written"
        ) from error
    except LockHeld as error:
        raise NotCopied(f"{partial}: process {error.holder or 'unknown'} writes a backup there; let it end") from error
    try:
        _begin_anew(partial)
        yield
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()


def _begin_anew(partial: Path) -> None:
    """Remove what an attempt, or a backup that was killed, left there."""
    for path in partial.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != UNFINISHED:
            path.unlink()


def _attempts(settings: LearnerSettings, initial: PolicyFile, partial: Path, clock: Callable[[], float]) -> Backup:
    wrong = ""
    for number in range(1, _TRIES + 1):
        copy = StateCopy(settings.state_dir, partial, _DATABASES)
        try:
            copy.take()
            copy.drop_unfinished(initial.spec.digest)
            return _read(settings, initial, partial, copy, clock())
        except (StateUnusable, FileNotFoundError) as error:  # a file that went while it was copied: the log was cut
            wrong = str(error).replace(str(partial), str(settings.state_dir)).partition("; ")[0]
            _log.warning("backup-begins-anew", attempt=number, of=_TRIES, reason=wrong)
            _begin_anew(partial)
    raise StateUnusable(
        f"{wrong}: so it was in {_TRIES} copies, and none was kept; if the learner runs well, try again at a quieter "
        "moment; `global-learner accept-loss` says what is damaged"
    )


def _read(settings: LearnerSettings, initial: PolicyFile, partial: Path, copy: StateCopy, now: float) -> Backup:
    """Read a copy as a start would.

    Raises:
        StateUnusable: a start would refuse it.
    """
    authority = partial / IDENTITY_FOLDER / "ca.pem"
    if authority.exists():
        try:
            read_authority(authority, authority.with_name(AUTHORITY_KEY_FILE), now)
        except LearnerError as error:
            raise StateUnusable(str(error)) from error
    with StateDir(partial, Losses.LIST) as state, contextlib.ExitStack() as opened:
        stores = read_stores(state, settings.model_copy(update={"state_dir": partial}), initial, now, opened)
        if state.commits.losses:
            raise StateUnusable(state.commits.losses[0])
        newest = stores.registry.newest()
        lines, _ = stores.registry.audit_head()
        if stores.identities is not None:
            lines += stores.identities.audit_head()[0]
        step, version = stores.found.head.step, 0 if newest is None else newest.version
    remove_traces(partial)
    (partial / "lock").unlink(missing_ok=True)
    return Backup(step, version, lines, copy.files, copy.size_bytes)
