"""Backup of a state directory, also of one that a learner serves: copied, read as a start reads it, then named.

The copy lies under another name until it was read: every store against every other, the audit logs' chains, every
version's file, and the log from the newest snapshot on. Whoever kills a backup leaves a folder that ends with
`.partial`, which holds a file that says so; the next backup of the same name removes it.

Every store holds how far the others had come at its own last commit (`commits.py`), and a start refuses one that is
behind. So whatever says something is copied before what it speaks of: the commit record, the newest snapshot, the
databases, the log, and then the rest. The databases speak of each other: all are read as they were at one moment. The
log is not cut meanwhile (`StateDir.cutting`).

A database that is behind the copied record, or whose bytes are not those that the record knows, is no backup. The copy
then gets a record of its own, with the checksums of its own databases, so that damage to it is found likewise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import PARTIAL, PRIVATE, sync_folder
from foundation.locks import FileLock, FolderLock, LockHeld
from global_learner.beliefs.belief_store import STORE as BELIEFS
from global_learner.enrollment.authority import AUTHORITY_KEY_FILE, read_authority
from global_learner.enrollment.identity_store import STORE as IDENTITIES
from global_learner.errors import BadLearnerConfig, LearnerError, NotCopied, StateUnusable
from global_learner.loss import read_stores
from global_learner.recovery import LOST_FOLDER
from global_learner.registry.registry import STORE as REGISTRY
from global_learner.settings import LearnerSettings
from global_learner.storage.commits import NAME as COMMITS_NAME
from global_learner.storage.commits import Commits, Losses
from global_learner.storage.database import read_counts
from global_learner.storage.snapshot import snapshot_files
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.storage.update_log import LogDamaged, read_records, segments
from global_learner.upkeep.places import check_places
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
_LEFT_OUT = frozenset({"lock", LOST_FOLDER, COMMITS_NAME, "snapshots", "log"})
"""Of the directory itself: copied otherwise, or nothing to go on from."""
_OPENS = 100
_BETWEEN_TRIES_SECONDS = 0.02
_CUT_SECONDS = 30.0
"""A learner that cuts its log holds the lock for as long as that takes."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup that was read holds; the audit lines are of both logs, whose chains hold."""

    head_step: int
    version: int
    audit_lines: int
    files: int
    size_bytes: int


def back_up(settings: LearnerSettings, initial: PolicyFile, target: Path, clock: Callable[[], float]) -> Backup:
    """Copy the state directory of a learner that runs, or does not, to a folder that is not there yet, or is empty.

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
    """Read a copy as a start would; StateUnusable if that would refuse it."""
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


class StateCopy:
    """One attempt at copying a state directory into an empty folder.

    Args:
        databases: the names of its SQLite files within it, with those of their stores; some may not be there.

    Raises of all methods:
        NotCopied: another backup copies the log, the databases change without pause, or the copy cannot be written.
        StateUnusable: a database is damaged, or has fallen back.
        OSError: it cannot be read, or the copy cannot be written.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        databases: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._target = target
        self._databases = {name: store for name, store in databases.items() if (source / name).exists()}
        self._sleep = sleep
        self.files = 0
        self.size_bytes = 0

    def take(self) -> None:
        """Copy everything; whether it is whole is for the caller to find out, by reading it."""
        uncut = self._uncut()
        try:
            with contextlib.suppress(FileNotFoundError):  # of an earlier program, or before its first start's end
                self._copy_file(self._source / COMMITS_NAME, self._target / COMMITS_NAME)
            self._copy_snapshot()
            self._copy_databases()
            self._copy_log()
            self._copy_rest()
        finally:
            uncut.release()
        self._seal()

    def _uncut(self) -> FolderLock:
        """The lock under which a log is cut."""
        log, waited = self._source / "log", 0.0
        while True:
            try:
                return FolderLock(log, self._sleep)
            except LockHeld as error:
                if waited >= _CUT_SECONDS:
                    raise NotCopied(f"{log}: another backup is copying it; wait until it has ended") from error
                self._sleep(1.0)
                waited += 1.0

    def drop_unfinished(self, spec_digest: str) -> None:
        """Let the log end where its newest segment can be read: what follows was being written while it was copied."""
        try:
            for _ in read_records(self._target / "log", spec_digest):
                pass
        except LogDamaged as error:
            if error.path == segments(self._target / "log")[-1]:
                os.truncate(error.path, error.end)

    def _copy_snapshot(self) -> None:
        (self._target / "snapshots").mkdir(mode=0o700)
        for path in reversed(snapshot_files(self._source / "snapshots")):
            with contextlib.suppress(FileNotFoundError):  # a newer one took its place
                self._copy_file(path, self._target / "snapshots" / path.name)
                return

    def _copy_databases(self) -> None:
        with self._one_moment() as moment:
            for name, connection in moment.items():
                path = self._target / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(PRIVATE)
                try:
                    with contextlib.closing(sqlite3.connect(path)) as copy:
                        connection.backup(copy)
                except sqlite3.Error as error:
                    raise NotCopied(
                        f"{self._source / name}: cannot be copied to {path} ({error}); free space or mend the disk, or "
                        "name another folder"
                    ) from error
                self.files, self.size_bytes = self.files + 1, self.size_bytes + path.stat().st_size

    @contextlib.contextmanager
    def _one_moment(self) -> Iterator[Mapping[str, sqlite3.Connection]]:
        """Connections that read the databases as they were when none had seen more of another than is there."""
        for _ in range(_OPENS):
            with contextlib.ExitStack() as opened:
                moment = {name: opened.enter_context(_reading(self._source / name)) for name in self._databases}
                counts = {name: read_counts(connection) for name, connection in moment.items()}
                own = {store: counts[name].get(store, 0) for name, store in self._databases.items()}
                if all(seen.get(store, 0) <= count for seen in counts.values() for store, count in own.items()):
                    yield moment
                    return
            self._sleep(_BETWEEN_TRIES_SECONDS)
        raise NotCopied(
            f"{self._source}: each of {_OPENS} times that its databases were opened, one had seen more of another than "
            "was there: they change without pause, or one fell back; try again, or see `global-learner accept-loss`"
        )

    def _copy_rest(self) -> None:
        for path in sorted(self._source.iterdir()):
            if path.name not in _LEFT_OUT:
                self._copy_tree(path, self._target / path.name)

    def _copy_tree(self, path: Path, copy: Path) -> None:
        if path.is_symlink() and not path.exists():
            raise StateUnusable(f"{path}: leads to {path.readlink()}, which is not there; bring it back")
        if path.is_dir():
            copy.mkdir(mode=0o700, exist_ok=True)
            for inner in sorted(path.iterdir()):
                self._copy_tree(inner, copy / inner.name)
        elif path.is_file() and not path.name.endswith(PARTIAL) and ".sqlite" not in path.name:
            with contextlib.suppress(FileNotFoundError):  # a version's file that nobody needs any more
                self._copy_file(path, copy)

    def _copy_log(self) -> None:
        (self._target / "log").mkdir(mode=0o700)
        for path in segments(self._source / "log"):
            self._copy_file(path, self._target / "log" / path.name)

    def _copy_file(self, path: Path, copy: Path) -> None:
        with path.open("rb") as source:
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
            with os.fdopen(descriptor, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                self.size_bytes += target.tell()
        self.files += 1

    def _seal(self) -> None:
        """Write down how far the copy's databases are, and their checksums."""
        commits = Commits(self._target)
        try:
            for name, store in self._databases.items():
                path = self._target / name
                with _reading(path) as connection:
                    count = read_counts(connection).get(store, 0)
                if count < commits.count(store):
                    raise StateUnusable(
                        f"{self._source / name}: it has come to change {count}, and {commits.count(store)} were "
                        "committed"
                    )
                self._check_source(name, store, count, commits.check(store, count))
                commits.committed(store, count, zlib.crc32(path.read_bytes()))
        finally:
            commits.close()

    def _check_source(self, name: str, store: str, count: int, expected: int | None) -> None:
        """See that a database has the bytes that its record knows, unless a learner has moved on meanwhile."""
        path = self._source / name
        if expected is None or zlib.crc32(path.read_bytes()) == expected:
            return
        with _reading(path) as connection:
            has_moved_on = read_counts(connection).get(store, 0) != count
        if has_moved_on:
            return
        raise StateUnusable(f"{path}: damaged, or changed by somebody else: its checksum is not {expected:08x}")


def make_durable(folder: Path) -> None:
    """Let a folder, and all in it, outlast the machine.

    Raises:
        OSError: the disk refused.
    """
    for where, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(where) / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(where))


def remove_traces(folder: Path) -> None:
    """Remove what readers of SQLite files leave beside them: nothing was written there."""
    for path in (*folder.rglob("*.sqlite-wal"), *folder.rglob("*.sqlite-shm")):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads a database as it is at this moment, whatever is committed later."""
    try:
        address = f"file:{urllib.parse.quote(str(path))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
    except sqlite3.DatabaseError as error:
        raise _no_database(path, error) from error
    with contextlib.closing(connection):
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except sqlite3.DatabaseError as error:
            raise _no_database(path, error) from error
        yield connection


def _no_database(path: Path, error: sqlite3.Error) -> StateUnusable:
    return StateUnusable(f"{path}: cannot be copied ({error}); `global-learner accept-loss` says more")
