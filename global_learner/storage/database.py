"""Database of the learner: what SQLite files and schemas of a PostgreSQL server have in common, and the SQLite file.

Every database counts its transactions in a table of its own, with what it saw of the other stores, so that a database
that falls back to an older state is found (see `commits.py`). What of the tables is missing is made at the start, by
the same statements everywhere: the tables of the program are the migration, which only ever adds.

A commit to an SQLite file is in the WAL first, and SQLite takes a WAL that is damaged for one that ends there: what was
committed is undone without a word. So every transaction that changes something is moved into the file itself before it
is told (`wal_checkpoint(TRUNCATE)`). The commit record also has the file's checksum at its count, as SQLite does not
notice a flipped bit in a value.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import urllib.parse
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateColumn

from foundation.errors import DISK_FULL
from foundation.files import PRIVATE
from global_learner.errors import DatabaseAway, StateUnusable
from global_learner.postgres.server import is_away
from global_learner.storage.commits import WAY_OUT, Commits, Losses

_log = structlog.get_logger()


COUNTS = "commits"
"""The table of counts."""
_RESTORE = "restore the state directory from a backup"


class Database(ABC):
    """Tables of one store, used by one thread at a time; `read_only` while losses are only being listed."""

    _engine: Engine

    def __init__(self, where: str, store: str, commits: Commits | None) -> None:
        self.where = where
        self.read_only = commits is not None and commits.rule is Losses.LIST
        self._store = store
        self._commits = commits

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def session(self) -> Session:
        """A session to read in."""
        return Session(self._engine)

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Session]:
        """A session whose changes are durable and counted when the block is left."""

    @abstractmethod
    def recount(self) -> None:
        """Write the count down although nothing else changed, after a loss was accepted."""

    def lose(self, what: str) -> None:
        """Refuse to go on over a loss in this database, or note it.

        Raises:
            StateUnusable: unless losses are accepted.
        """
        if self._commits is None:
            raise StateUnusable(f"{self.where}: {what}; {WAY_OUT}")
        self._commits.lose(f"{self.where}: {what}")


@contextlib.contextmanager
def usable(where: Path | str, what: str) -> Iterator[None]:
    """A database that cannot be read as what it should be is an unusable state.

    Raises:
        StateUnusable: the body failed in the database.
        DatabaseAway: its server cannot be asked at the moment.
    """
    try:
        yield
    except DatabaseError as error:
        message = f"{where}: no usable {what} ({str(error.orig).strip()})"
        raise (DatabaseAway(message) if is_away(error) else StateUnusable(f"{message}; {_RESTORE}")) from error
    except UnicodeDecodeError as error:  # of a text in it, or of what SQLite says of a damaged one
        raise StateUnusable(f"{where}: no usable {what} ({error}); {_RESTORE}") from error
    except OSError as error:
        raise StateUnusable(f"{where}: no usable {what} ({error.strerror})") from error


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """Make the tables, and add to those of an earlier program the columns that it did not know.

    Raises:
        DatabaseError: it is no database, or cannot be written.
    """
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS {COUNTS} (store TEXT PRIMARY KEY, count BIGINT)"))
    metadata.create_all(connection)
    known = inspect(connection)
    for table in metadata.sorted_tables:
        present = {column["name"] for column in known.get_columns(table.name)}
        for column in table.columns:
            if column.name not in present:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {definition}"))


def write_counts(connection: Session | Connection, counts: Mapping[str, int]) -> None:
    """Write down how far stores have come."""
    for store, count in counts.items():
        connection.execute(
            text(
                f"INSERT INTO {COUNTS} (store, count) VALUES (:store, :count) "  # noqa: S608  (a constant)
                "ON CONFLICT (store) DO UPDATE SET count = excluded.count"
            ),
            {"store": store, "count": count},
        )


_CHUNK_BYTES = 1 << 20
_BUSY_MILLISECONDS = 5000
_CHECKPOINT_MILLISECONDS = 100
_PRIMARY_CODE = 0xFF
"""Of SQLite's extended result codes: the kind of the error, without what it was amid."""


class SqliteFile(Database):
    """One SQLite file, made if it is not there, and used by one thread at a time.

    Args:
        store: its name in the commit record.
        what: it is, for people.
        tables: of the present program; what an earlier one's file lacks of them is added.
        commits: the state directory's record; None: nothing is counted against anything.

    Raises:
        StateUnusable: it is damaged, was changed by somebody else, or fell back to an older state.
    """

    def __init__(self, path: Path, store: str, what: str, tables: MetaData, commits: Commits | None) -> None:
        super().__init__(str(path), store, commits)
        self.path = path
        there = self._has_content()
        self._count = 0
        self._engine = create_engine(self._address(there))
        event.listen(self._engine, "connect", _be_durable)
        # Closing any descriptor of a file drops SQLite's locks on it: one stays open until SQLite has closed it.
        self._file: int | None = None
        try:
            with usable(path, what):
                if commits is not None and there:
                    self._judge(commits)
                elif commits is not None:
                    commits.found(store, 0, str(path))
                if there:
                    self._count = _read_counts(path).get(store, 0)
                if not self.read_only:
                    path.touch(PRIVATE)  # its WAL and its index get the same mode
                if not (self.read_only and there):
                    self._complete(tables, counted=there)
                check_whole(self._engine, path)
            if commits is not None:
                commits.found(store, self._count, str(path))
                # After a loss that is accepted it counts on from what others saw: no count means two things.
                self._count = max(self._count, commits.count(store))
            self._keep()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        super().close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session whose changes are durable, counted and in the file itself when the block is left."""
        with self._full_disk_named(), Session(self._engine) as session, session.begin():
            connection: Any = session.connection().connection.dbapi_connection
            before = connection.total_changes
            yield session
            session.flush()
            changed = connection.total_changes != before
            if changed:
                self._note_counts(session)
        if changed:
            self._count += 1
            self._keep()

    @contextlib.contextmanager
    def _full_disk_named(self) -> Iterator[None]:
        """Tell a disk, a quota or a limit that lets no file grow from a broken disk.

        SQLite calls only the first of them full; of the others it says what it says of a write that failed. So the same
        is tried beside the file.

        Raises:
            OSError: there is no room.
        """
        try:
            yield
        except DBAPIError as error:
            code = getattr(error.orig, "sqlite_errorcode", 0)
            if code & _PRIMARY_CODE != sqlite3.SQLITE_IOERR:
                raise
            wal = self.path.with_name(f"{self.path.name}-wal")
            largest = max((file.stat().st_size for file in (self.path, wal) if file.exists()), default=0)
            refused = _refusal(self.path.parent, largest)
            if refused is None or refused.errno not in DISK_FULL:
                raise
            raise OSError(refused.errno, refused.strerror, str(self.path)) from error

    def _note_counts(self, session: Session | Connection) -> None:
        counts = {} if self._commits is None else self._commits.counts()
        counts[self._store] = self._count + 1
        write_counts(session, counts)

    def recount(self) -> None:
        """Write the count down although nothing else changed, after a loss was accepted."""
        with self.transaction() as session:
            self._note_counts(session)

    def _keep(self) -> None:
        """Move what was committed from the WAL into the file, and note how the file is now."""
        if self.read_only:
            return
        moved = self._checkpoint()
        if self._commits is not None:
            try:
                # What is still in the WAL will change the file, at whatever time it is moved.
                self._commits.committed(self._store, self._count, self._checksum() if moved else None)
            except OSError as error:
                _log.warning("commit-record-unwritten", file=str(self.path), reason=str(error))

    def _has_content(self) -> bool:
        """Whether there is anything in the file that was committed.

        A file is begun under a rollback journal. One that was cut off there by a kill is nothing yet: SQLite takes it
        back, if it may write.
        """
        if not self.path.exists() or self.path.stat().st_size == 0:
            return False
        journal = self.path.with_name(f"{self.path.name}-journal")
        if not journal.exists():
            return True
        if self.read_only:
            return self._commits is not None and self._commits.count(self._store) > 0
        with usable(self.path, "database"), contextlib.closing(sqlite3.connect(self.path)) as connection:
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            except sqlite3.DatabaseError as error:
                raise DatabaseError(None, None, error) from error
        return self.path.stat().st_size > 0

    def _address(self, there: bool) -> URL:
        """For SQLAlchemy; not as one string, in which some characters of a path would mean something else."""
        if not self.read_only:
            return URL.create("sqlite", database=str(self.path))
        if not there:
            return URL.create("sqlite")
        return URL.create("sqlite", database=_uri(self.path), query={"mode": "ro", "uri": "true"})

    def _complete(self, tables: MetaData, counted: bool) -> None:
        """Make what is missing of the tables, in one transaction with the count: no count means two states of a file.

        It is `counted` where it is a change of what was there.
        """
        with self._engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # Python's driver begins none before a change of tables
            before = connection.exec_driver_sql("PRAGMA schema_version").scalar()
            create_missing(connection, tables)
            changed = counted and connection.exec_driver_sql("PRAGMA schema_version").scalar() != before
            if changed:
                self._note_counts(connection)
        if changed:
            self._count += 1

    def _checkpoint(self) -> bool:
        """Move the WAL into the file; whether all of it is there, which who else has the file open may prevent.

        It is committed all the same: the next transaction moves it.
        """
        try:
            with self._engine.connect() as connection:
                # Not for whom else has it open: the next one moves it, and everybody waits for this thread.
                connection.execute(text(f"PRAGMA busy_timeout={_CHECKPOINT_MILLISECONDS}"))
                busy = connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
                connection.execute(text(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}"))
        except SQLAlchemyError as error:
            busy = str(error)
        if busy:
            reason = busy if isinstance(busy, str) else "another process has it open"
            _log.warning("database-not-checkpointed", file=str(self.path), reason=reason)
        return not busy

    def _judge(self, commits: Commits) -> None:
        """Look at a file before SQLite does, which would take away what may still be read in a damaged WAL.

        Raises:
            StateUnusable: it has fallen back, or its bytes are not those that were written.
            DatabaseError: it is no database.
        """
        checksum = self._checksum()
        counts = _read_counts(self.path)
        own = counts.pop(self._store, 0)
        commits.claim(self.path.name, counts)
        commits.found(self._store, own, str(self.path))
        expected = commits.check(self._store, own)
        if expected is not None and expected != checksum:
            commits.lose(
                f"{self.path}: damaged, or changed by somebody else: its checksum is {checksum:08x}, expected "
                f"{expected:08x}"
            )

    def _checksum(self) -> int:
        if self._file is None:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        checksum, at = 0, 0
        while chunk := os.pread(self._file, _CHUNK_BYTES, at):
            checksum, at = zlib.crc32(chunk, checksum), at + len(chunk)
        return checksum


def _refusal(folder: Path, size_bytes: int) -> OSError | None:
    """What the system says to a file of so many bytes that grows by a chunk; None if it lets it; nothing stays."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            os.pwrite(file.fileno(), bytes(_CHUNK_BYTES), size_bytes)
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def check_whole(engine: Engine, path: Path) -> None:
    """Read through a database, its indexes against its tables; SQLite itself looks only at pages that a query needs.

    Raises:
        StateUnusable: pages are missing or damaged.
        SQLAlchemyError: it cannot be read at all.
    """
    with engine.connect() as connection:
        answer = connection.execute(text("PRAGMA integrity_check(1)")).scalar()
    if answer != "ok":
        raise StateUnusable(f"{path}: damaged ({answer}); restore the state directory from a copy")


def _uri(path: Path) -> str:
    return f"file:{urllib.parse.quote(str(path))}"


def _read_counts(path: Path) -> dict[str, int]:
    """The counts in a file, which is left as it is; none in one of an earlier program.

    Raises:
        DatabaseError: it is no database.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{_uri(path)}?mode=ro", uri=True)) as connection:
            return read_counts(connection)
    except sqlite3.DatabaseError as error:
        raise DatabaseError(None, None, error) from error


def read_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """The counts in an open file: its own and what it saw of the other stores; none in one of an earlier program.

    Raises:
        sqlite3.DatabaseError: it is no database, or the table holds something else.
    """
    try:
        rows = connection.execute(f"SELECT store, count FROM {COUNTS}").fetchall()  # noqa: S608  (a constant)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return {}
        raise
    if not all(isinstance(store, str) and isinstance(count, int) for store, count in rows):
        raise sqlite3.DatabaseError(f"table {COUNTS} holds what was never written there")
    return dict(rows)


def _be_durable(connection: Any, _record: object) -> None:
    """What every connection begins with: WAL, synced at every commit; foreign keys."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_MILLISECONDS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
