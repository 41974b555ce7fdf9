"""The audit log of identities: who did what to whom, when; written in the same transaction as the deed.

A deed of one kind to one subject is written once a minute at most unless it changed something, so that a caller who is
refused again and again cannot fill the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from global_learner.enrollment.tables import AuditRow

REPEAT_SECONDS = 60.0
_MAX_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the log."""

    unix_seconds: float
    actor: str
    action: str
    subject: str
    detail: str


def record(
    session: Session, now: float, actor: str, action: str, subject: str, detail: str, repeats: bool = False
) -> None:
    """Add a line; with `repeats`, only if the subject's last line of this action is a minute old or says otherwise."""
    if repeats:
        last = session.scalars(
            select(AuditRow)
            .where(AuditRow.subject == subject, AuditRow.action == action)
            .order_by(AuditRow.number.desc())
            .limit(1)
        ).first()
        if last is not None and last.detail == detail and 0.0 <= now - last.unix_seconds < REPEAT_SECONDS:
            return
    session.add(
        AuditRow(unix_seconds=now, actor=actor[:_MAX_CHARACTERS], action=action, subject=subject, detail=detail)
    )


def entries(session: Session) -> list[AuditEntry]:
    """The whole log, oldest first."""
    rows = session.scalars(select(AuditRow).order_by(AuditRow.number))
    return [AuditEntry(row.unix_seconds, row.actor, row.action, row.subject, row.detail) for row in rows]
