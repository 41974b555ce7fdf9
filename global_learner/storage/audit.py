"""Audit log: who did what to whom, when; a line is written in the same transaction as its act.

Identities and versions are in databases of their own, hence two tables of one form; `policyctl audit` shows them as one
log. An act of one kind to one subject that changes nothing is written once a minute at most, so that a caller who is
refused again and again cannot fill the disk.

Lines are chained (`audit_chain.py`), and the chain is recomputed at every start: a line that was changed, removed or
put in between by anything but the learner is named; so is a log that was cut at its end, by the count and the checksum
of its database. Whoever can write the file can also recompute the chain: from the machine's own administrator it
protects as far as a digest was noted elsewhere (`policyctl audit verify`). Lines are never dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Float, Integer, String, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from global_learner.storage.audit_chain import AuditLine, digest_of
from global_learner.storage.database import Database

KEEPER = "global-learner"
"""Who acts in a log where the learner does so by itself."""
_OWN_ACTORS = (KEEPER, "learner")
"""Who stands in lines that no person brought about; `learner` in those of rollouts."""
REPEAT_SECONDS = 60.0
_MAX_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class Order:
    """Order of a person, or of the learner itself: who gives it, when, and why; with `dry_run` it changes nothing."""

    actor: str
    unix_seconds: float
    why: str = ""
    dry_run: bool = False

    def words(self, what: str) -> str:
        """What is done as the audit log has it, with the reason."""
        return f"{what}: {self.why}" if self.why else what


class AuditColumns:
    """One thing that was done, or refused; rows are only ever added."""

    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)
    actor: Mapped[str] = mapped_column(String(63))
    action: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(63), index=True)
    detail: Mapped[str] = mapped_column(String)
    digest: Mapped[str] = mapped_column(String(64), default="", server_default="")


class AuditLog:
    """The log in one table; `name` is one of `audit_chain.LOGS`."""

    def __init__(self, table: type[AuditColumns], name: str) -> None:
        self._table = table
        self._name = name

    def record(
        self,
        session: Session,
        now: float,
        actor: str,
        action: str,
        subject: str,
        detail: str,
        repeats: bool = False,
    ) -> None:
        """Add a line; with `repeats`, only if the subject's last line of this action is a minute old or differs."""
        table = self._table
        if repeats:
            last = session.scalars(
                select(table)
                .where(table.subject == subject, table.action == action)
                .order_by(table.number.desc())
                .limit(1)
            ).first()
            if last is not None and last.detail == detail and 0.0 <= now - last.unix_seconds < REPEAT_SECONDS:
                return
        row = table()
        row.unix_seconds, row.actor, row.action = now, actor[:_MAX_CHARACTERS], action
        row.subject, row.detail = subject, detail
        session.flush()
        before = session.execute(select(table.number, table.digest).order_by(table.number.desc()).limit(1)).first()
        # Not the database's own count, which passes over a number when a transaction is given up.
        row.number, digest = (1, "") if before is None else (before.number + 1, before.digest)
        row.digest = _digest(digest, row)
        session.add(row)
        session.flush()

    def check(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """Recompute the chain; lines of an earlier program, which have none, are chained now, and a line says so.

        Raises:
            StateUnusable: a line is not what was written.
        """
        with database.session() as session:
            rows = session.scalars(select(self._table).order_by(self._table.number)).all()
            chained = any(row.digest for row in rows)
            broken = _first_broken(rows) if chained else None
        if broken is not None:
            database.lose(broken)
        elif rows and not chained and not database.read_only:
            what = f"{len(rows)} lines of an earlier program, as they stood: nothing vouches for what was before"
            with database.transaction() as session:
                self._chain(session)
                self.record(session, clock(), KEEPER, "chain-begun", "audit", what)

    def chain_anew(self, database: Database) -> None:
        """Chain all lines as they are now."""
        with database.transaction() as session:
            self._chain(session)

    def _chain(self, session: Session) -> None:
        digest = ""
        for row in session.scalars(select(self._table).order_by(self._table.number)):
            row.digest = digest = _digest(digest, row)

    def holds(self, session: Session, action: str, subject: str, detail: str) -> bool:
        """Whether exactly this was written before."""
        table = self._table
        found = select(table.number).where(table.action == action, table.subject == subject, table.detail == detail)
        return session.scalars(found.limit(1)).first() is not None

    def entries(self, session: Session, since_unix_seconds: float = 0.0) -> list[AuditLine]:
        """The log, oldest first, from the first line of a moment on: without a gap, however clocks were set."""
        table = self._table
        first = session.scalars(select(func.min(table.number)).where(table.unix_seconds >= since_unix_seconds)).one()
        if first is None:
            return []
        before = session.scalars(select(table.digest).where(table.number == first - 1)).first() or ""
        lines = []
        for row in session.scalars(select(table).where(table.number >= first).order_by(table.number)):
            content = (row.unix_seconds, row.actor, row.action, row.subject, row.detail)
            lines.append(AuditLine(self._name, row.number, *content, before, row.digest))
            before = row.digest
        return lines

    def acts(self, session: Session, actions: Collection[str], most: int) -> list[AuditLine]:
        """The newest lines of these actions that people brought about, newest first, `most` at most; no digests."""
        table = self._table
        chosen = select(table).where(table.action.in_(actions), table.actor.not_in(_OWN_ACTORS))
        return [
            AuditLine(self._name, row.number, row.unix_seconds, row.actor, row.action, row.subject, row.detail, "", "")
            for row in session.scalars(chosen.order_by(table.number.desc()).limit(most))
        ]

    def head(self, session: Session) -> tuple[int, str]:
        """How many lines there are, and the digest of the last one; empty without any."""
        table = self._table
        last = session.execute(select(table.number, table.digest).order_by(table.number.desc()).limit(1)).first()
        return (0, "") if last is None else (last[0], last[1])


def _digest(before: str, row: AuditColumns) -> str:
    return digest_of(before, row.unix_seconds, row.actor, row.action, row.subject, row.detail)


def _first_broken(rows: Sequence[AuditColumns]) -> str | None:
    digest, expected_number = "", 1
    for row in rows:
        digest = _digest(digest, row)
        when = datetime.fromtimestamp(min(max(row.unix_seconds, 0.0), 4e9), UTC).strftime("%Y-%m-%d %H:%M:%S")
        if row.digest != digest or row.number != expected_number:
            return (
                f"the audit log breaks at line {expected_number}: what stands there ({when} UTC, {row.actor[:63]} "
                f"{row.action[:32]} {row.subject[:63]}) is not what was written behind line {expected_number - 1}"
            )
        expected_number += 1
    return None
