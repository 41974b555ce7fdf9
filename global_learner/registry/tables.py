"""Tables of the registry: versions, clusters with what they are assigned, and the audit log of both."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Integer, LargeBinary, String, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.storage.audit import AuditColumns


class Base(DeclarativeBase):
    """Root of the tables."""


class VersionRow(Base):
    """One published version; what it is never changes, what is done with it does.

    Attributes:
        kept: its policy file is there.
        pinned: an operator wants it kept.
        reset_base: the head was reset to it last, so the next version descends from it.
        head_digest: of the head's file, which holds the moments; empty where none is kept.
        score: `ReplayScore.to_json`; None until there is one.
        signed: a `SignedDocument` of fleet.proto; None of a version from before there were signatures.
    """

    __tablename__ = "versions"

    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    head_step: Mapped[int] = mapped_column(BigInteger, unique=True)
    parent: Mapped[int] = mapped_column(Integer)
    digest: Mapped[str] = mapped_column(String(64))
    spec_digest: Mapped[str] = mapped_column(String(64))
    spec_json: Mapped[str] = mapped_column(String)
    created_unix_seconds: Mapped[float] = mapped_column(Float)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    updates: Mapped[int] = mapped_column(BigInteger)
    contributions: Mapped[dict[str, int]] = mapped_column(JSON)
    staleness_p50: Mapped[float] = mapped_column(Float)
    kept: Mapped[bool] = mapped_column(default=True)
    pinned: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    reset_base: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict, server_default="{}")
    head_digest: Mapped[str] = mapped_column(String(64), default="", server_default="")
    head_size_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    score: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    signed: Mapped[bytes | None] = mapped_column(LargeBinary)


class ClusterRow(Base):
    """One cluster that ever registered; `held` says that an operator assigned its version."""

    __tablename__ = "clusters"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[int] = mapped_column(BigInteger)
    assigned_version: Mapped[int] = mapped_column(ForeignKey("versions.version"))
    registered_unix_seconds: Mapped[float] = mapped_column(Float)
    job_types: Mapped[list[str]] = mapped_column(JSON)
    held: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())


class AuditRow(AuditColumns, Base):
    """What was done with versions, and to the head."""

    __tablename__ = "audit"
