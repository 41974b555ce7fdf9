"""Tables of identities, and what a cluster's rows amount to: invited, enrolled, expired or revoked.

They are in a file of their own: they hold what the rest of the learner need not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Float, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.enrollment.types import ClusterIdentity, EnrollmentState, PersonIdentity
from global_learner.roles import CallerRole
from global_learner.storage.audit import AuditColumns


class EnrollmentTables(DeclarativeBase):
    """Root of the tables."""


class InvitationRow(EnrollmentTables):
    """One token, of which only the hash is kept; `key_digest` is of the key that it was traded for."""

    __tablename__ = "invitations"

    token_digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    cluster: Mapped[str] = mapped_column(String(63), index=True)
    created_unix_seconds: Mapped[float] = mapped_column(Float)
    expires_unix_seconds: Mapped[float] = mapped_column(Float)
    key_digest: Mapped[str | None] = mapped_column(String(64))
    fingerprint: Mapped[str | None] = mapped_column(String(64))


class CertificateRow(EnrollmentTables):
    """One certificate that the learner issued."""

    __tablename__ = "certificates"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), index=True)
    role: Mapped[str] = mapped_column(String(16))
    issued_unix_seconds: Mapped[float] = mapped_column(Float)
    expires_unix_seconds: Mapped[float] = mapped_column(Float)
    revoked_unix_seconds: Mapped[float | None] = mapped_column(Float)
    pem: Mapped[str] = mapped_column(String)


class RevocationRow(EnrollmentTables):
    """A name whose certificates of another authority are refused if they were made before a moment."""

    __tablename__ = "revocations"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)


class ForgottenRow(EnrollmentTables):
    """A cluster that was turned out and is listed no longer, until it is invited again."""

    __tablename__ = "forgotten"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)


class IdentityAuditRow(AuditColumns, EnrollmentTables):
    """The audit log of identities."""

    __tablename__ = "audit"


def statuses(
    certificates: Sequence[CertificateRow],
    invitations: Sequence[InvitationRow],
    revocations: Sequence[RevocationRow],
    now: float,
) -> list[ClusterIdentity]:
    """Every cluster's status, by name; an enrolled cluster that was invited again is still enrolled."""
    found = {row.name: _turned_out(row) for row in revocations}
    for certificate in sorted(certificates, key=lambda row: row.issued_unix_seconds):
        found[certificate.name] = _holder(certificate, now)
    for invitation in invitations:
        present = found.get(invitation.cluster)
        if present is None or present.state is not EnrollmentState.ENROLLED:
            found[invitation.cluster] = _invited(invitation, now)
    return [found[name] for name in sorted(found)]


def people(certificates: Sequence[CertificateRow], now: float) -> list[PersonIdentity]:
    """Every person's newest certificate, by name."""
    newest = {row.name: row for row in sorted(certificates, key=lambda row: row.issued_unix_seconds)}
    return [
        PersonIdentity(
            row.name,
            CallerRole(row.role),
            _state(row, now),
            row.issued_unix_seconds,
            row.expires_unix_seconds,
            row.fingerprint,
            row.revoked_unix_seconds or 0.0,
        )
        for _, row in sorted(newest.items())
    ]


def _state(row: CertificateRow, now: float) -> EnrollmentState:
    if row.revoked_unix_seconds is not None:
        return EnrollmentState.REVOKED
    return EnrollmentState.ENROLLED if row.expires_unix_seconds > now else EnrollmentState.EXPIRED


def _holder(row: CertificateRow, now: float) -> ClusterIdentity:
    return ClusterIdentity(
        row.name,
        _state(row, now),
        row.issued_unix_seconds,
        row.expires_unix_seconds,
        row.fingerprint,
        row.revoked_unix_seconds or 0.0,
    )


def _invited(row: InvitationRow, now: float) -> ClusterIdentity:
    state = EnrollmentState.INVITED if row.expires_unix_seconds > now else EnrollmentState.EXPIRED
    return ClusterIdentity(row.cluster, state, expires_unix_seconds=row.expires_unix_seconds)


def _turned_out(row: RevocationRow) -> ClusterIdentity:
    return ClusterIdentity(row.name, EnrollmentState.REVOKED, revoked_unix_seconds=row.unix_seconds)
