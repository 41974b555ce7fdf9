"""Databases of the learner, by place: SQLite files beside the rest of the state, or schemas of a PostgreSQL server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from sqlalchemy import MetaData

from global_learner.postgres.lease_table import hold
from global_learner.postgres.server import Server
from global_learner.storage.commits import Commits
from global_learner.storage.database import Database
from global_learner.storage.postgres_schema import PostgresSchema
from global_learner.storage.sqlite_file import SqliteFile


class Databases(Protocol):
    """Opens the database of a store."""

    def open(self, path: Path, store: str, what: str, tables: MetaData) -> Database:
        """Open a store's database, or make it.

        Args:
            path: where its file is, or would be.
            store: its name in the commit record.
            what: it is, for people.
            tables: of the present program.

        Raises:
            StateUnusable: it is damaged, or fell back to an older state.
            DatabaseAway, LeaseLost: the server cannot be asked, or another learner writes.
        """


class Files:
    """SQLite files; the one process that has the state directory's lock writes them.

    Args:
        commits: the state directory's record; None: nothing is counted against anything.
    """

    def __init__(self, commits: Commits | None) -> None:
        self._commits = commits

    def open(self, path: Path, store: str, what: str, tables: MetaData) -> Database:
        """See `Databases.open`."""
        return SqliteFile(path, store, what, tables, self._commits)


class Schemas:
    """Schemas of a server, in one database; the holder of the lease writes them.

    Args:
        fence: the fencing number of the lease that is held.
        commits: as for `Files`.
    """

    def __init__(self, server: Server, fence: int, commits: Commits | None) -> None:
        self._server = server
        self._hold = partial(hold, fence=fence)
        self._commits = commits

    def open(self, path: Path, store: str, what: str, tables: MetaData) -> Database:
        """See `Databases.open`."""
        del path
        return PostgresSchema(self._server, store, what, tables, self._commits, self._hold)
