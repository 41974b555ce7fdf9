"""Table of the lease: one row, which says who is the active learner until when, by the database's clock.

Every change of holder gives the next fencing number. A transaction that writes holds the number (`FOR KEY SHARE`) until
it is committed: renewals, which leave the number alone, pass it; a takeover, which changes it, waits for it. So what an
earlier holder writes is either there before the next one begins, or refused.

Source: fencing tokens (Kleppmann, "How to do distributed locking", 2016), checked where the data is.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, DateTime, MetaData, SmallInteger, String, Table, text
from sqlalchemy.exc import SQLAlchemyError

from global_learner.errors import LeaseLost
from global_learner.postgres.server import Server

SCHEMA = "learner_lease"
_STATEMENT_MILLISECONDS = 2000
_TABLES = MetaData()
_LEASE = Table(
    "lease",
    _TABLES,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    # In an index of its own, or changing it would lock no more than a renewal does.
    Column("fence", BigInteger, nullable=False, unique=True),
    Column("holder", String, nullable=False),
    Column("expires", DateTime(timezone=True), nullable=False),
)
_STATE = Table(
    "state",
    _TABLES,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("directory", String, nullable=False),
)
"""Which state directory goes with the database, by a number of its own."""
_TAKE = text(
    """
    INSERT INTO lease (id, fence, holder, expires)
    VALUES (1, 1, :holder, clock_timestamp() + :seconds * interval '1 second')
    ON CONFLICT (id) DO UPDATE SET fence = lease.fence + 1, holder = excluded.holder, expires = excluded.expires
    WHERE lease.expires <= clock_timestamp()
    RETURNING fence
    """
)
_RENEW = text(
    """
    UPDATE lease SET expires = greatest(expires, clock_timestamp() + :seconds * interval '1 second')
    WHERE id = 1 AND fence = :fence RETURNING fence
    """
)
_RELEASE = text("UPDATE lease SET expires = clock_timestamp() WHERE id = 1 AND fence = :fence")
_HOLDER = text("SELECT holder, fence, expires > clock_timestamp() FROM lease WHERE id = 1")
_CLAIM = text("INSERT INTO state (id, directory) VALUES (1, :directory) ON CONFLICT (id) DO NOTHING")
_DIRECTORY = text("SELECT directory FROM state WHERE id = 1")
_HOLD = text(f"SELECT fence FROM {SCHEMA}.lease WHERE id = 1 FOR KEY SHARE")  # noqa: S608  (a constant)


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who has the lease, or had it last."""

    name: str
    fence: int
    in_force: bool


class LeaseTable:
    """The lease in a server; used by one thread at a time. Every method blocks for a few seconds at most.

    Raises of all methods:
        DatabaseAway, BadConfig: the server cannot be asked now, or does not know whoever asks.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._engine = server.engine(SCHEMA, statement_milliseconds=_STATEMENT_MILLISECONDS)
        self._made = False

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def directory(self) -> str | None:
        """The number of the state directory that goes with this database; None if none was told yet."""
        self._make()
        try:
            with self._engine.connect() as connection:
                found: str | None = connection.execute(_DIRECTORY).scalar()
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error
        return found

    def claim_directory(self, number: str) -> str:
        """Tell the number of the state directory, unless one was told before; the one that holds."""
        self._make()
        try:
            with self._engine.begin() as connection:
                connection.execute(_CLAIM, {"directory": number})
                return str(connection.execute(_DIRECTORY).scalar())
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error

    def take(self, holder: str, seconds: float) -> int | None:
        """Become the holder if nobody is; the fencing number, or None."""
        self._make()
        return self._one(_TAKE, holder=holder, seconds=seconds)

    def renew(self, fence: int, seconds: float) -> None:
        """Hold on, from now for so long; also where the lease ran out and nobody took it.

        Raises:
            LeaseLost: somebody took it.
        """
        if self._one(_RENEW, fence=fence, seconds=seconds) is None:
            raise LeaseLost(_lost(fence))

    def release(self, fence: int) -> None:
        """Let the next one take it at once; nothing if it was lost."""
        try:
            with self._engine.begin() as connection:
                connection.execute(_RELEASE, {"fence": fence})
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error

    def holder(self) -> LeaseHolder | None:
        """Who has it; None if nobody ever had."""
        self._make()
        try:
            with self._engine.connect() as connection:
                row = connection.execute(_HOLDER).first()
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error
        return None if row is None else LeaseHolder(row[0], row[1], row[2])

    def _one(self, statement: object, **values: object) -> int | None:
        try:
            with self._engine.begin() as connection:
                found: int | None = connection.execute(statement, values).scalar()  # type: ignore[call-overload]
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error
        return found

    def _make(self) -> None:
        if self._made:
            return
        self._server.make_schema(SCHEMA)
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('fedl2'))")
                _TABLES.create_all(connection)
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error
        self._made = True


def hold(connection: Connection, fence: int) -> None:
    """Let nobody take the lease until this transaction has ended.

    Raises:
        LeaseLost: somebody took it already.
    """
    if connection.execute(_HOLD).scalar() != fence:
        raise LeaseLost(_lost(fence))


def _lost(fence: int) -> str:
    return (
        f"another learner took the lease that this one held under number {fence}: it has written nothing since, and "
        "ends; started again it waits as the standby"
    )
