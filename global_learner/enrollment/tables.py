"""The tables of identities, in a file of their own: they hold what the rest of the learner need not read."""

from __future__ import annotations

from sqlalchemy import Float, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.storage.audit import AuditColumns


class Base(DeclarativeBase):
    """Root of the tables."""


class InvitationRow(Base):
    """One token, of which only the hash is kept; `key_digest` is of the key that it was traded for."""

    __tablename__ = "invitations"

    token_digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    cluster: Mapped[str] = mapped_column(String(63), index=True)
    created_unix_seconds: Mapped[float] = mapped_column(Float)
    expires_unix_seconds: Mapped[float] = mapped_column(Float)
    key_digest: Mapped[str | None] = mapped_column(String(64))
    fingerprint: Mapped[str | None] = mapped_column(String(64))


class CertificateRow(Base):
    """One certificate that the learner issued."""

    __tablename__ = "certificates"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), index=True)
    role: Mapped[str] = mapped_column(String(16))
    issued_unix_seconds: Mapped[float] = mapped_column(Float)
    expires_unix_seconds: Mapped[float] = mapped_column(Float)
    revoked_unix_seconds: Mapped[float | None] = mapped_column(Float)
    pem: Mapped[str] = mapped_column(String)


class RevocationRow(Base):
    """A name whose certificates of another authority are refused if they were made before a moment."""

    __tablename__ = "revocations"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)


class AuditRow(AuditColumns, Base):
    """The audit log of identities."""

    __tablename__ = "audit"
