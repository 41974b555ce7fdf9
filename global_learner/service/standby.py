"""Standby of the learner: it waits for the lease of a shared database, says so on its HTTP port, and then takes over.

Meanwhile nobody can reach the fleet's port here, so that agents try the next address. A learner without a database
waits for nobody: the lock of its state directory says at once whether it is alone. All functions raise StateUnusable
where the state directory cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from foundation.clocks import boot_seconds
from foundation.files import PARTIAL, PRIVATE, sync_folder, write_first, write_whole
from global_learner.errors import BadLearnerConfig, DatabaseAway, LeaseLost, StateUnusable
from global_learner.operator_socket import OPERATOR_SOCKET, socket_name
from global_learner.postgres.lease import Lease, LeaseKeeper, LeaseTable
from global_learner.postgres.server import Server
from global_learner.service.http_server import http_pages
from global_learner.settings import LearnerSettings
from global_learner.storage.databases import SharedDatabase
from global_learner.storage.snapshot import PARTIAL_NAME
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.telemetry import LearnerTelemetry

_log = structlog.get_logger()

_ASKS = 10
"""How often a standby asks in a lease's time."""


# Terms of a state directory that learners share: the folder of the active one carries its fencing number in its name.
#
# Who takes the lease renames the folder of the one before, in one step that a file system does whole or not at all.
# From then on nothing that an earlier holder does by a name finds the folder: no snapshot, no version, no segment of
# the log. What it still writes through files that it has open goes nowhere: the next one copies those that are written
# in place, and cuts the log's segments behind a snapshot. So a learner that was frozen in a write, and wakes, harms
# nothing.

DIRECTORY_FILE = "directory.id"
"""Holds the number of the directory."""
_PREFIX = "term-"


def directory_number(state_dir: Path, *, make: bool) -> str | None:
    """The number of a state directory, by which learners that share a database see that they share the directory too.

    With `make`, one that has none gets one.
    """
    path = state_dir / DIRECTORY_FILE
    try:
        if make and not path.exists():
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_first(path, f"{uuid.uuid4()}\n".encode(), mode=PRIVATE)
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else None
    except OSError as error:
        raise StateUnusable(
            f"state_dir {state_dir}: cannot be used ({error.strerror}); name a directory that can be written"
        ) from error


def take_term(state_dir: Path, fence: int) -> Path:
    """The folder of this term, with all that the term before left; a new one at the very first start.

    Raises:
        LeaseLost: a later term has begun.
        StateUnusable: the directory holds the state of a learner without a database.
    """
    mine = _folder(state_dir, fence)
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        terms = _terms(state_dir)
        if terms and terms[-1] > fence:
            raise LeaseLost(f"{state_dir}: term {terms[-1]} has begun, and this learner's is {fence}; it ends")
        if terms:
            before = terms[-1]
            if before != fence:
                _folder(state_dir, before).rename(mine)
                sync_folder(state_dir)
            _detach(mine)
            if len(terms) > 1:
                advice = "left by a learner that lost its lease as it began: nothing uses them"
                _log.warning("terms-left", folder=str(state_dir), terms=terms[:-1], advice=advice)
            return mine
        if (state_dir / "registry.sqlite").exists():
            raise StateUnusable(
                f"state_dir {state_dir}: holds the state of a learner without a database; begin in an empty one, or "
                "leave out the setting database"
            )
        mine.mkdir(mode=0o700)
        sync_folder(state_dir)
    except FileNotFoundError as error:
        raise LeaseLost(f"{state_dir}: a later term began meanwhile ({error}); this learner ends") from error
    except OSError as error:
        raise StateUnusable(
            f"state_dir {state_dir}: cannot be used ({error.strerror}); name a directory that can be written"
        ) from error
    return mine


def point_to(term: Path, name: str, there: str = "") -> None:
    """Let a name in the state directory lead to what this term has under it, or `there`, and not to an earlier term."""
    link = term.parent / name
    partial = term / f"{name}{PARTIAL}"
    try:
        partial.unlink(missing_ok=True)
        partial.symlink_to(Path(term.name) / (there or name))
        partial.replace(link)
    except OSError as error:
        raise StateUnusable(
            f"{link}: cannot be made ({error.strerror}); name a state_dir that can be written"
        ) from error


def _detach(term: Path) -> None:
    """Put copies in the place of the files that are written in place: an earlier holder may have them open."""
    receipts = sorted((term / "receipts").glob("updates-*.jsonl"))
    written = [*(path for path in term.iterdir() if path.is_file()), *receipts[-1:], term / "snapshots" / PARTIAL_NAME]
    for path in written:
        if path.is_file() and not path.is_symlink():
            write_whole(path, path.read_bytes(), mode=PRIVATE, alone=True)


def _terms(state_dir: Path) -> list[int]:
    names = (path.name.removeprefix(_PREFIX) for path in state_dir.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def _folder(state_dir: Path, fence: int) -> Path:
    return state_dir / f"{_PREFIX}{fence:010d}"


@dataclass(slots=True)
class Term:
    """The time in which this learner is the active one.

    `lost` is called once, on the event loop, if another learner takes the lease.
    """

    state: StateDir
    lost: Callable[[BaseException], None] = field(default=lambda _: None)


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
        standby = _Standby()
        with http_pages(settings.telemetry.http_listen, telemetry, standby.health, health=standby.health):
            lease = await _taken(settings, table, ending, standby)
        if lease is None:
            yield None
            return
        loop = asyncio.get_running_loop()
        terms: list[Term] = []

        def lost(error: LeaseLost) -> None:
            for term in terms:
                term.lost(error)

        keeper = LeaseKeeper(lease, table, lambda error: loop.call_soon_threadsafe(lost, error))
        keeper.start()
        try:
            path = take_term(settings.state_dir, lease.fence)
            with StateDir(path, lease=lease) as state:
                state.shared = SharedDatabase(server, lease.fence)
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
    seconds, reported = settings.lease_seconds, ""
    me = f"{socket.gethostname()}:{os.getpid()}"
    shared = False
    while not ending.is_set():
        sent_at = boot_seconds()
        try:
            if not shared:
                await asyncio.to_thread(_check_shared, settings, table)
                shared = True
            fence = await asyncio.to_thread(table.take, me, seconds)
            if fence is not None:
                _log.info("lease-taken", fence=fence)
                return Lease(fence, seconds, sent_at)
            holder = await asyncio.to_thread(table.holder)
            standby.why = "nobody is active" if holder is None else f"{holder.name} is active, number {holder.fence}"
        except DatabaseAway as error:
            standby.why = str(error)
        if standby.why != reported:
            reported = standby.why
            _log.info("learner-waits", listen=settings.listen, reason=reported)
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
