"""The registry's tables: versions, and clusters with what they are assigned."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Root of the tables."""


class VersionRow(Base):
    """One published version; rows are never changed, but for `kept`."""

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


class ClusterRow(Base):
    """One cluster that ever registered."""

    __tablename__ = "clusters"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[int] = mapped_column(BigInteger)
    assigned_version: Mapped[int] = mapped_column(ForeignKey("versions.version"))
    registered_unix_seconds: Mapped[float] = mapped_column(Float)
    job_types: Mapped[list[str]] = mapped_column(JSON)
