"""Databases of the learner, by place: SQLite files beside the rest of the state, or schemas of a PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Connection, MetaData, text
from sqlalchemy.orm import Session

from global_learner.postgres.lease import hold
from global_learner.postgres.server import Server
from global_learner.storage.commits import Commits
from global_learner.storage.database import COUNTS, Database, SqliteFile, create_missing, usable, write_counts

# Before a transaction that changed something is committed it holds the lease's fencing number, in the same transaction:
# what a learner writes that is no longer the active one is refused by the database itself.

_log = structlog.get_logger()

Hold = Callable[[Connection], None]
"""Holds the fencing number until a transaction ends, or raises `LeaseLost`."""

_HAS_CHANGED = text("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
_COUNT_ON = text(
    f"INSERT INTO {COUNTS} AS known (store, count) VALUES (:store, :least + 1) "  # noqa: S608  (a constant)
    "ON CONFLICT (store) DO UPDATE SET count = greatest(known.count, :least) + 1 RETURNING count"
)


class PostgresSchema(Database):
    """One schema, used by one thread at a time; see `SqliteFile` for the arguments.

    Raises:
        StateUnusable: it fell back to an older state, or is no such store.
        DatabaseAway: the server cannot be asked at the moment.
        LeaseLost: another learner is the active one.
    """

    def __init__(
        self, server: Server, store: str, what: str, tables: MetaData, commits: Commits | None, hold: Hold
    ) -> None:
        self._schema = f"learner_{store}"
        super().__init__(f"{server.where}, schema {self._schema}", store, commits)
        self._hold = hold
        if not self.read_only:
            server.make_schema(self._schema)
        self._engine = server.engine(self._schema, self.read_only)
        try:
            with usable(self.where, what):
                counts = self._counts()
                self._count = counts.pop(store, 0)
                if commits is not None:
                    commits.claim(f"the database's {what}", counts)
                    commits.found(store, self._count, self.where)
                if not self.read_only:
                    with self._engine.begin() as connection:
                        create_missing(connection, tables)
                        hold(connection)
            if commits is not None:
                # After a loss that is accepted it counts on from what others saw: no count means two things.
                self._count = max(self._count, commits.count(store))
                self._note()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session whose changes are durable, counted, and the active learner's, when the block is left."""
        with Session(self._engine) as session, session.begin():
            yield session
            session.flush()
            changed = bool(session.execute(_HAS_CHANGED).scalar())
            if changed:
                count = self._count_on(session)
        if changed:
            self._count = count
            self._note()

    def recount(self) -> None:
        """Write the count down although nothing else changed, after a loss was accepted."""
        with self.transaction() as session:
            self._count_on(session)

    def _count_on(self, session: Session) -> int:
        """The next count. The server knows the last one: of a commit whose answer was lost nobody else does."""
        if self._commits is not None:
            write_counts(session, {store: n for store, n in self._commits.counts().items() if store != self._store})
        count: int = session.execute(_COUNT_ON, {"store": self._store, "least": self._count}).scalar_one()
        self._hold(session.connection())
        return count

    def _note(self) -> None:
        if self.read_only or self._commits is None:
            return
        try:
            self._commits.committed(self._store, self._count)
        except OSError as error:
            _log.warning("commit-record-unwritten", store=self._store, reason=str(error))

    def _counts(self) -> dict[str, int]:
        """The counts in the schema; none in a new one."""
        with self._engine.connect() as connection:
            made = connection.execute(
                text("SELECT to_regclass(:name) IS NOT NULL"), {"name": f"{self._schema}.{COUNTS}"}
            ).scalar()
            if not made:
                return {}
            rows = connection.execute(text(f"SELECT store, count FROM {COUNTS}")).all()  # noqa: S608  (a constant)
        return {row[0]: row[1] for row in rows}


@dataclass(frozen=True, slots=True)
class SharedDatabase:
    """A server's database that learners share, and the fencing number of the lease that this one holds."""

    server: Server
    fence: int


def open_database(
    path: Path, store: str, what: str, tables: MetaData, commits: Commits | None, shared: SharedDatabase | None
) -> Database:
    """Open a store's database, or make it: a schema of the shared database, or else the SQLite file at `path`.

    Raises:
        StateUnusable: it is damaged, or fell back to an older state.
        DatabaseAway, LeaseLost: the server cannot be asked, or another learner writes.
    """
    if shared is None:
        return SqliteFile(path, store, what, tables, commits)
    return PostgresSchema(shared.server, store, what, tables, commits, partial(hold, fence=shared.fence))
