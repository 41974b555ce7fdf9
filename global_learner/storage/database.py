"""Database of the learner: what SQLite files and schemas of a PostgreSQL server have in common, and how tables change.

Every database counts its transactions in a table of its own, with what it saw of the other stores, so that whatever
falls back to an older state is found (see `commits.py`). What of the tables is missing is made at the start, by the
same statements everywhere: the tables of the program are the migration, which only ever adds.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, inspect, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateColumn

from global_learner.errors import DatabaseAway, StateUnusable
from global_learner.postgres.server import is_away
from global_learner.storage.commits import WAY_OUT, Commits, Losses

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
        said = f"{where}: no usable {what} ({str(error.orig).strip()})"
        raise (DatabaseAway(said) if is_away(error) else StateUnusable(f"{said}; {_RESTORE}")) from error
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
