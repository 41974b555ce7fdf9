"""Standby of the learner: it waits for the lease of a shared database, says so on its HTTP port, and then takes over.

Meanwhile nobody can reach the fleet's port here, so that agents try the next address. A learner without a database
waits for nobody: the lock of its state directory says at once whether it is alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import structlog

from foundation.clocks import boot_seconds
from global_learner.errors import BadLearnerConfig, DatabaseAway, LeaseLost, StateUnusable
from global_learner.operator_socket import OPERATOR_SOCKET, socket_name
from global_learner.postgres.lease import Lease, LeaseKeeper
from global_learner.postgres.lease_table import LeaseTable
from global_learner.postgres.server import Server
from global_learner.service.http_endpoint import HttpEndpoint
from global_learner.settings import LearnerSettings
from global_learner.storage.databases import Schemas
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.storage.terms import DIRECTORY_FILE, directory_number, point_to, take_term
from global_learner.telemetry import LearnerTelemetry

_log = structlog.get_logger()

_ASKS = 10
"""How often a standby asks in a lease's time."""


@dataclass(slots=True)
class Term:
    """The time in which this learner is the active one.

    Attributes:
        lost: is called once, on the event loop, if another learner takes the lease.
    """

    state: StateDir
    lost: Callable[[BaseException], None] = field(default=lambda _: None)

    def lose(self, error: BaseException) -> None:
        """Another learner has the lease."""
        self.lost(error)


@contextlib.asynccontextmanager
async def term_of(
    settings: LearnerSettings, telemetry: LearnerTelemetry, ending: asyncio.Event
) -> AsyncIterator[Term | None]:
    """Be the active learner for as long as the block lasts; None if it was to end before it came to that.

    Raises:
        StateUnusable, BadConfig: the state directory, or the database, cannot be used.
        LeaseLost: another learner took over before this one had begun.
    """
    if settings.database is None:
        with StateDir(settings.state_dir) as state:
            yield Term(state)
        return
    server = Server(settings.database)
    with contextlib.closing(LeaseTable(server)) as table:
        with _http(settings, telemetry) as standby:
            lease = await _taken(settings, table, ending, standby)
        if lease is None:
            yield None
            return
        loop = asyncio.get_running_loop()
        terms: list[Term] = []

        def lost(error: LeaseLost) -> None:
            for term in terms:
                loop.call_soon_threadsafe(term.lose, error)

        keeper = LeaseKeeper(lease, table, lost)
        keeper.start()
        try:
            path = take_term(settings.state_dir, lease.fence)
            with StateDir(path, lease=lease) as state:
                state.databases = Schemas(server, lease.fence, state.commits)
                terms.append(Term(state))
                point_to(path, IDENTITY_FOLDER)
                point_to(path, OPERATOR_SOCKET, socket_name(lease.fence))
                yield terms[0]
        except StateUnusable as error:
            # Whose folder was renamed meanwhile finds a damaged state.
            if lease.refusal is not None:
                raise lease.refusal from error
            raise
        finally:
            await asyncio.to_thread(keeper.close)


class _Standby:
    """What is said while waiting."""

    def __init__(self) -> None:
        self.why = "not asked yet"

    def health(self) -> str:
        return f"standby: {self.why}"


async def _taken(
    settings: LearnerSettings, table: LeaseTable, ending: asyncio.Event, standby: _Standby
) -> Lease | None:
    """Wait until the lease is free, and take it; None if it was to end meanwhile."""
    seconds, said = settings.lease_seconds, ""
    me = f"{socket.gethostname()}:{os.getpid()}"
    shared = False
    while not ending.is_set():
        asked_at = boot_seconds()
        try:
            if not shared:
                await asyncio.to_thread(_check_shared, settings, table)
                shared = True
            fence = await asyncio.to_thread(table.take, me, seconds)
            if fence is not None:
                _log.info("lease-taken", fence=fence)
                return Lease(fence, seconds, asked_at)
            holder = await asyncio.to_thread(table.holder)
            standby.why = "nobody is active" if holder is None else f"{holder.name} is active, number {holder.fence}"
        except DatabaseAway as error:
            standby.why = str(error)
        if standby.why != said:
            said = standby.why
            _log.info("learner-waits", listen=settings.listen, reason=said)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), seconds / _ASKS)
    return None


def _check_shared(settings: LearnerSettings, table: LeaseTable) -> None:
    """See that the state directory is the one that goes with the database, before this learner waits for anything.

    With one of its own it would take over a fleet of which it has nothing, at the worst moment.

    Raises:
        BadConfig: it is another one.
    """
    known = table.directory()
    here = directory_number(settings.state_dir, make=known is None)
    if known is None and here is not None:
        known = table.claim_directory(here)
    if here != known:
        raise BadLearnerConfig(
            f"setting state_dir: {settings.state_dir} is another directory than the one that goes with this database: "
            "learners that share a database share the directory too, on a volume that all of them may write "
            f"(ReadWriteMany); name that one (its {DIRECTORY_FILE} says {known})"
        )


@contextlib.contextmanager
def _http(settings: LearnerSettings, telemetry: LearnerTelemetry) -> Iterator[_Standby]:
    """Health and metrics while waiting."""
    standby, address = _Standby(), settings.telemetry.http_listen
    if address is None:
        yield standby
        return
    endpoint = HttpEndpoint(
        address,
        telemetry.registry,
        standby.health,
        None,
        lambda reason: telemetry.http_refusals.labels(reason).inc(),
        health=standby.health,
    )
    endpoint.start()
    try:
        yield standby
    finally:
        endpoint.close()
