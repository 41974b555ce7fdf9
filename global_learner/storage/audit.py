"""Audit log: who did what to whom, when; a line is written in the same transaction as its act.

Identities and versions are in databases of their own, hence two tables of one form; `policyctl audit` shows them as one
log. An act of one kind to one subject that changes nothing is written once a minute at most, so that a caller who is
refused again and again cannot fill the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Float, Integer, String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

REPEAT_SECONDS = 60.0
_MAX_CHARACTERS = 63


class AuditColumns:
    """One thing that was done, or refused; rows are only ever added."""

    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)
    actor: Mapped[str] = mapped_column(String(63))
    action: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(63), index=True)
    detail: Mapped[str] = mapped_column(String)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the log."""

    unix_seconds: float
    actor: str
    action: str
    subject: str
    detail: str


class AuditLog:
    """The log in one table."""

    def __init__(self, table: type[AuditColumns]) -> None:
        self._table = table

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
        session.add(row)

    def holds(self, session: Session, action: str, subject: str, detail: str) -> bool:
        """Whether exactly this was written before."""
        table = self._table
        found = select(table.number).where(table.action == action, table.subject == subject, table.detail == detail)
        return session.scalars(found.limit(1)).first() is not None

    def entries(self, session: Session, since_unix_seconds: float = 0.0) -> list[AuditEntry]:
        """The log from a moment on, oldest first."""
        table = self._table
        rows = session.scalars(select(table).where(table.unix_seconds >= since_unix_seconds).order_by(table.number))
        return [AuditEntry(row.unix_seconds, row.actor, row.action, row.subject, row.detail) for row in rows]
