"""Tables of identities, and what a holder's rows amount to: invited, enrolled, expired or revoked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Float, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.storage.audit import AuditColumns
from policy_net.exchange.generated import fleet_pb2


class EnrollmentState(StrEnum):
    """A cluster's status."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token, the only time that it is seen; `voided_tokens` are earlier ones of the name that count no longer."""

    token: str
    expires_unix_seconds: float
    voided_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CertificateGrant:
    """A certificate as its holder gets it; `repeated` if it had been made before and not arrived."""

    pem: bytes
    fingerprint: str
    expires_unix_seconds: float
    repeated: bool = False


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
) -> list[fleet_pb2.ClusterIdentity]:
    """Every cluster's status, by name; an enrolled cluster that was invited again is still enrolled."""
    identity = fleet_pb2.ClusterIdentity
    found = {
        row.name: identity(cluster=row.name, state=EnrollmentState.REVOKED, revoked_unix_seconds=row.unix_seconds)
        for row in revocations
    }
    for row in sorted(certificates, key=lambda row: row.issued_unix_seconds):
        found[row.name] = identity(cluster=row.name, **_status(row, now))
    for invitation in invitations:
        name, expires = invitation.cluster, invitation.expires_unix_seconds
        if name not in found or found[name].state != EnrollmentState.ENROLLED:
            state = EnrollmentState.INVITED if expires > now else EnrollmentState.EXPIRED
            found[name] = identity(cluster=name, state=state, expires_unix_seconds=expires)
    return [found[name] for name in sorted(found)]


def people(certificates: Sequence[CertificateRow], now: float) -> list[fleet_pb2.OperatorIdentity]:
    """Every person's newest certificate, by name."""
    newest = {row.name: row for row in sorted(certificates, key=lambda row: row.issued_unix_seconds)}
    return [
        fleet_pb2.OperatorIdentity(name=name, role=row.role, **_status(row, now))
        for name, row in sorted(newest.items())
    ]


def _status(row: CertificateRow, now: float) -> dict[str, Any]:
    """The fields that a cluster's and a person's status share; seconds are 0 where there is no such moment."""
    if row.revoked_unix_seconds is not None:
        state = EnrollmentState.REVOKED
    else:
        state = EnrollmentState.ENROLLED if row.expires_unix_seconds > now else EnrollmentState.EXPIRED
    return {
        "state": state,
        "issued_unix_seconds": row.issued_unix_seconds,
        "expires_unix_seconds": row.expires_unix_seconds,
        "fingerprint": row.fingerprint,
        "revoked_unix_seconds": row.revoked_unix_seconds or 0.0,
    }
