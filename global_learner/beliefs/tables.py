"""Tables of `beliefs.sqlite`."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Float, Integer, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class BeliefTables(DeclarativeBase):
    """Root of the tables of `beliefs.sqlite`."""


class TypeRow(BeliefTables):
    """One job type of the vocabulary; rows are only ever added."""

    __tablename__ = "job_types"
    __table_args__ = (UniqueConstraint("name", "kind"),)

    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String)
    kind: Mapped[str] = mapped_column(String)
    proposed_by: Mapped[str] = mapped_column(String(63))
    unix_seconds: Mapped[float] = mapped_column(Float)


class StandingRow(BeliefTables):
    """In how many versions in a row a cluster's report had a part and contradicted nobody."""

    __tablename__ = "standings"
    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    versions: Mapped[int] = mapped_column(Integer)


class ReportRow(BeliefTables):
    """What a cluster said last; `content` is compressed rows of (position of the type, PSs, workers, speed, count)."""

    __tablename__ = "reports"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[int] = mapped_column(BigInteger)
    revision: Mapped[int] = mapped_column(BigInteger)
    unix_seconds: Mapped[float] = mapped_column(Float)
    statistics: Mapped[int] = mapped_column(Integer)
    observations: Mapped[int] = mapped_column(BigInteger)
    left_out: Mapped[list[str]] = mapped_column(JSON)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[str] = mapped_column(String(64))


class BeliefStandardRow(BeliefTables):
    """What versions are held to of one type; `content` is compressed rows of (kind, PSs, workers, speed, count)."""

    __tablename__ = "held_to"

    job_type: Mapped[str] = mapped_column(String, primary_key=True)
    role: Mapped[str] = mapped_column(String(16), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[str] = mapped_column(String(64))
