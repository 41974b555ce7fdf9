"""Tables of identities, and what a holder's rows amount to: invited, enrolled, expired or revoked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import Float, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.roles import CallerRole
from global_learner.storage.audit import AuditColumns
from policy_net.exchange.generated import fleet_pb2


class EnrollmentState(StrEnum):
    """A cluster's status."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster's status; seconds are 0 where there is no such moment."""

    cluster: str
    state: EnrollmentState
    issued_unix_seconds: float = 0.0
    expires_unix_seconds: float = 0.0
    fingerprint: str = ""
    revoked_unix_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PersonIdentity:
    """A person's newest certificate; `revoked_unix_seconds` is 0 if it is not."""

    name: str
    role: CallerRole
    state: EnrollmentState
    issued_unix_seconds: float
    expires_unix_seconds: float
    fingerprint: str
    revoked_unix_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token, the only time that it is seen.

    Attributes:
        voided_tokens: earlier ones of the name, still good and not used, that count no longer.
    """

    token: str
    expires_unix_seconds: float
    voided_tokens: int = 0


def identity_message(entry: ClusterIdentity) -> fleet_pb2.ClusterIdentity:
    """The status's message, which has the same fields."""
    return fleet_pb2.ClusterIdentity(**asdict(entry))


def person_message(entry: PersonIdentity) -> fleet_pb2.OperatorIdentity:
    """The message of a person's certificate, which has the same fields."""
    return fleet_pb2.OperatorIdentity(**asdict(entry))


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
    found = {
        row.name: ClusterIdentity(row.name, EnrollmentState.REVOKED, revoked_unix_seconds=row.unix_seconds)
        for row in revocations
    }
    for certificate in sorted(certificates, key=lambda row: row.issued_unix_seconds):
        found[certificate.name] = ClusterIdentity(certificate.name, *_status(certificate, now))
    for invitation in invitations:
        present = found.get(invitation.cluster)
        if present is None or present.state is not EnrollmentState.ENROLLED:
            expires = invitation.expires_unix_seconds
            state = EnrollmentState.INVITED if expires > now else EnrollmentState.EXPIRED
            found[invitation.cluster] = ClusterIdentity(invitation.cluster, state, expires_unix_seconds=expires)
    return [found[name] for name in sorted(found)]


def people(certificates: Sequence[CertificateRow], now: float) -> list[PersonIdentity]:
    """Every person's newest certificate, by name."""
    newest = {row.name: row for row in sorted(certificates, key=lambda row: row.issued_unix_seconds)}
    return [PersonIdentity(row.name, CallerRole(row.role), *_status(row, now)) for _, row in sorted(newest.items())]


def _status(row: CertificateRow, now: float) -> tuple[EnrollmentState, float, float, str, float]:
    """The fields that a cluster's and a person's status share."""
    if row.revoked_unix_seconds is not None:
        state = EnrollmentState.REVOKED
    else:
        state = EnrollmentState.ENROLLED if row.expires_unix_seconds > now else EnrollmentState.EXPIRED
    revoked = row.revoked_unix_seconds or 0.0
    return state, row.issued_unix_seconds, row.expires_unix_seconds, row.fingerprint, revoked
