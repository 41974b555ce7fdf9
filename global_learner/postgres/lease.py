"""Lease of the active learner: one row of a shared database, and what this process holds of it.

The row says who is active until when, by the database's clock. Every change of holder gives the next fencing number. A
transaction that writes holds the number (`FOR KEY SHARE`) until it is committed: renewals, which leave the number
alone, pass it; a takeover, which changes it, waits for it. So what an earlier holder writes is either there before the
next one begins, or refused.

In the process the time counts from before the request that renewed it, by a clock that nobody sets, and ends a tenth
early: when another learner may take the lease, this one has stopped. Without a shared database there is no lease.
Source: fencing tokens (Kleppmann, "How to do distributed locking", 2016), checked where the data is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
from sqlalchemy import BigInteger, Column, Connection, DateTime, MetaData, SmallInteger, String, Table, text
from sqlalchemy.exc import SQLAlchemyError

from foundation.clocks import boot_seconds
from global_learner.errors import LearnerError, LeaseLost, NotActive
from global_learner.postgres.server import Server

_log = structlog.get_logger()

_SHARE = 0.9
"""Of the lease's time this one acts; the rest is for clocks that do not run alike."""
_RENEWALS = 5
"""Renewals in a lease's time: some may fail."""
_CLOSE_SECONDS = 5.0
"""How long a database may take to hear that the lease is given back."""
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
        with self._begun() as connection:
            found: str | None = connection.execute(_DIRECTORY).scalar()
        return found

    def claim_directory(self, number: str) -> str:
        """Tell the number of the state directory, unless one was told before; the one that holds."""
        self._make()
        with self._begun() as connection:
            connection.execute(_CLAIM, {"directory": number})
            return str(connection.execute(_DIRECTORY).scalar())

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
        with self._begun() as connection:
            connection.execute(_RELEASE, {"fence": fence})

    def holder(self) -> LeaseHolder | None:
        """Who has it; None if nobody ever had."""
        self._make()
        with self._begun() as connection:
            row = connection.execute(_HOLDER).first()
        return None if row is None else LeaseHolder(row[0], row[1], row[2])

    def _one(self, statement: object, **values: object) -> int | None:
        with self._begun() as connection:
            found: int | None = connection.execute(statement, values).scalar()  # type: ignore[call-overload]
        return found

    @contextlib.contextmanager
    def _begun(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._server.translated(error) from error

    def _make(self) -> None:
        if self._made:
            return
        self._server.make_schema(SCHEMA)
        with self._begun() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('fedl2'))")
            _TABLES.create_all(connection)
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


class Lease:
    """What is held, under which fencing number and until when, counted from `sent_at`; for any thread."""

    def __init__(self, fence: int, seconds: float, sent_at: float, clock: Callable[[], float] = boot_seconds) -> None:
        self.fence = fence
        self.seconds = seconds
        self._clock = clock
        self._until = sent_at + _SHARE * seconds
        self._lost: LeaseLost | None = None

    def check(self) -> None:
        """See that this learner is the active one, now.

        Raises:
            LeaseLost: another one is; it never comes back.
            NotActive: that is not known, as the database has not said so lately.
        """
        refusal = self.refusal
        if refusal is not None:
            raise refusal

    @property
    def refusal(self) -> NotActive | None:
        """Why this learner may not act now, or None."""
        if self._lost is not None:
            return self._lost
        late = self._clock() - self._until
        if late < 0.0:
            return None
        return NotActive(
            f"the lease was not renewed, {late:.1f} s too long: the database does not answer, or this process was held "
            "up; nothing is taken until it is"
        )

    def renewed(self, sent_at: float) -> None:
        """Note a renewal that was asked for at this time."""
        self._until = max(self._until, sent_at + _SHARE * self.seconds)

    def lose(self, error: LeaseLost) -> None:
        """Note that another learner has it."""
        self._lost = error


class LeaseKeeper:
    """Renews a lease in a thread of its own, until it is given back or another learner took it.

    `lost` is called once then, in that thread.
    """

    def __init__(
        self,
        lease: Lease,
        table: LeaseTable,
        lost: Callable[[LeaseLost], object],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._lease = lease
        self._table = table
        self._lost = lost
        self._clock = clock
        self._away = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Give the lease back, so that a standby need not wait; where that fails, it runs out."""
        self._ending.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("lease-not-given-back", fence=self._lease.fence, reason="the database does not answer")

    def renew(self) -> bool:
        """Renew once; False if it is lost."""
        sent_at = self._clock()
        try:
            self._table.renew(self._lease.fence, self._lease.seconds)
        except LeaseLost as error:
            _log.error("lease-lost", fence=self._lease.fence)
            self._lease.lose(error)
            self._lost(error)
            return False
        except LearnerError as error:
            if not self._away:
                _log.error("lease-not-renewed", fence=self._lease.fence, reason=str(error))
            self._away = True
            return True
        self._lease.renewed(sent_at)
        if self._away:
            _log.warning("lease-renewed-again", fence=self._lease.fence)
        self._away = False
        return True

    def _keep(self) -> None:
        while not self._ending.wait(self._lease.seconds / _RENEWALS):
            if not self.renew():
                return
        try:
            self._table.release(self._lease.fence)
        except LearnerError as error:
            _log.warning("lease-not-given-back", fence=self._lease.fence, reason=str(error))
