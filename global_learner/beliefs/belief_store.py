"""Store of the clusters' reports of speeds: one a cluster, replaced whole by its next.

So nothing is ever counted twice: of retries, duplicates, restarts and new registrations the newest (incarnation,
revision) stands. Every method blocks, and the learner calls them on the registry's thread. The vocabulary of job types
is the learner's: a type gets the next position when a cluster first reports it, for good.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import JSON, BigInteger, Float, Integer, LargeBinary, String, UniqueConstraint, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from global_learner.aggregation.settings import AGGREGATION_NAME
from global_learner.beliefs.bounds import BeliefStandard
from global_learner.errors import StateUnusable
from global_learner.section_settings import BeliefSettings
from global_learner.storage.commits import Commits
from global_learner.storage.database import usable
from global_learner.storage.databases import SharedDatabase, open_database
from policy_net.domain import JobKind
from policy_net.exchange.statistics import SpeedStatistic

_log = structlog.get_logger()

_NAME = "beliefs.sqlite"
STORE = "beliefs"
"""Its name in the commit record."""
LONGEST_STANDING = 8
"""Versions after which a cluster is as well known as any other."""


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


@dataclass(frozen=True, slots=True)
class BeliefSummary:
    """What the learner holds of one cluster: splits whose speed it told, intervals behind them, types left out."""

    statistics: int
    observations: int
    left_out: tuple[str, ...] = ()


class BeliefStore:
    """Reports and vocabulary in one database (`open_database`); `summaries` is replaced whole after each commit.

    Raises of all methods:
        StateUnusable: the database is no such store, cannot be opened, or is not what was written.
    """

    def __init__(
        self,
        state_dir: Path,
        settings: BeliefSettings,
        commits: Commits | None = None,
        shared: SharedDatabase | None = None,
    ) -> None:
        path = state_dir / _NAME
        begun = shared is None and (state_dir / AGGREGATION_NAME).exists()
        if begun and not (path.exists() and path.stat().st_size):
            _log.warning("beliefs-begun-anew", file=str(path), advice="agents tell theirs again as they register")
        self._settings = settings
        self.summaries: Mapping[str, BeliefSummary] = {}
        self.types = 0
        self._database = open_database(path, STORE, "book of beliefs", BeliefTables.metadata, commits, shared)
        self._where = self._database.where
        with usable(self._where, "book of beliefs"):
            self._reread()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def recount(self) -> None:
        """Count on after a loss that was accepted."""
        self._database.recount()

    def report(
        self,
        cluster: str,
        incarnation: int,
        revision: int,
        statistics: Sequence[SpeedStatistic],
        unix_seconds: float,
    ) -> bool:
        """Replace what a cluster has told; False if this revision or a later one is here already."""
        with self._database.transaction() as session:
            row = session.get(ReportRow, cluster)
            if row is not None and (row.incarnation, row.revision) >= (incarnation, revision):
                return False
            positions = self._positions(session, cluster, statistics, unix_seconds)
            known = [entry for entry in statistics if (entry.job_type, entry.kind.value) in positions]
            content = _packed([[positions[e.job_type, e.kind.value], *_split(e)] for e in known])
            session.merge(
                ReportRow(
                    cluster=cluster,
                    incarnation=incarnation,
                    revision=revision,
                    unix_seconds=unix_seconds,
                    statistics=len(known),
                    observations=sum(entry.count for entry in known),
                    left_out=sorted({entry.job_type for entry in statistics} - {entry.job_type for entry in known}),
                    content=content,
                    digest=hashlib.sha256(content).hexdigest(),
                )
            )
        self._reread()
        return True

    def reports(self, counts: Callable[[str, float], bool]) -> dict[str, tuple[SpeedStatistic, ...]]:
        """What the clusters told, by name; only those that count, asked with the Unix seconds of their report."""
        with self._database.session() as session:
            rows = session.scalars(select(ReportRow).order_by(ReportRow.cluster)).all()
            # Afterwards: types are only ever added, so none is missing, whoever else reads and writes meanwhile.
            types = {row.position: row for row in session.scalars(select(TypeRow))}
            return {
                row.cluster: tuple(
                    SpeedStatistic(types[position].name, JobKind(types[position].kind), *rest)
                    for position, *rest in self._unpacked(row, f"the report of cluster {row.cluster}")
                )
                for row in rows
                if counts(row.cluster, row.unix_seconds)
            }

    def standings(self) -> dict[str, int]:
        """In how many versions in a row each cluster had a part, up to `LONGEST_STANDING`."""
        with self._database.session() as session:
            return {row.cluster: row.versions for row in session.scalars(select(StandingRow))}

    def note_version(self, sound: Collection[str], odd: Collection[str]) -> None:
        """Note which clusters' reports went into a version, and whose contradicted the others'."""
        with self._database.transaction() as session:
            for cluster in odd:
                session.merge(StandingRow(cluster=cluster, versions=0))
            for cluster in sound:
                row = session.get(StandingRow, cluster)
                versions = min(LONGEST_STANDING, 1 + (0 if row is None else row.versions))
                session.merge(StandingRow(cluster=cluster, versions=versions))

    def standard(self) -> BeliefStandard:
        """What versions are held to beside the newest and the first one."""
        with self._database.session() as session:
            rows = session.scalars(select(BeliefStandardRow).order_by(BeliefStandardRow.job_type)).all()
            found: dict[str, dict[str, tuple[SpeedStatistic, ...]]] = {"silenced": {}, "agreed": {}}
            for row in rows:
                found[row.role][row.job_type] = tuple(
                    SpeedStatistic(row.job_type, JobKind(kind), *rest)
                    for kind, *rest in self._unpacked(row, f"what versions are held to of job type {row.job_type}")
                )
        return BeliefStandard(**found)

    def keep_standard(self, standard: BeliefStandard) -> None:
        """Replace what versions are held to."""
        contents = {
            (job_type, role): _packed([[e.kind.value, *_split(e)] for e in entries])
            for role, types in (("silenced", standard.silenced), ("agreed", standard.agreed))
            for job_type, entries in types.items()
        }
        with self._database.session() as session:
            rows = session.execute(
                select(BeliefStandardRow.job_type, BeliefStandardRow.role, BeliefStandardRow.content)
            ).all()
        stands = {(job_type, role): content for job_type, role, content in rows}
        if stands == contents:
            return
        with self._database.transaction() as session:
            for job_type, role in stands.keys() - contents.keys():
                session.delete(session.get_one(BeliefStandardRow, (job_type, role)))
            for (job_type, role), content in contents.items():
                if stands.get((job_type, role)) != content:
                    digest = hashlib.sha256(content).hexdigest()
                    session.merge(BeliefStandardRow(job_type=job_type, role=role, content=content, digest=digest))

    def vocabulary(self) -> list[tuple[str, JobKind]]:
        """The fleet's job types, in the order in which they were first reported."""
        with self._database.session() as session:
            rows = session.scalars(select(TypeRow).order_by(TypeRow.position))
            return [(row.name, JobKind(row.kind)) for row in rows]

    def _positions(
        self, session: Session, cluster: str, statistics: Sequence[SpeedStatistic], unix_seconds: float
    ) -> dict[tuple[str, str], int]:
        """Of the reported types, those of the vocabulary; new ones are added while there is room."""
        keys = {(entry.job_type, entry.kind.value) for entry in statistics}
        known = {(row.name, row.kind): row.position for row in session.scalars(select(TypeRow))}
        mine = session.scalars(select(func.count()).where(TypeRow.proposed_by == cluster)).one()
        for name, kind in sorted(keys - set(known)):
            if len(known) >= self._settings.max_types or mine >= self._settings.max_types_per_cluster:
                break
            position = len(known)
            session.add(
                TypeRow(position=position, name=name, kind=kind, proposed_by=cluster, unix_seconds=unix_seconds)
            )
            known[name, kind] = position
            mine += 1
        return {key: known[key] for key in keys if key in known}

    def _unpacked(self, row: ReportRow | BeliefStandardRow, what: str) -> list[list[Any]]:
        if hashlib.sha256(row.content).hexdigest() != row.digest:
            raise StateUnusable(
                f"{self._where}: {what} is damaged; restore the file from a copy, or remove it: agents tell again what "
                "they know"
            )
        rows: list[list[Any]] = json.loads(zlib.decompress(row.content))
        return rows

    def _reread(self) -> None:
        with self._database.session() as session:
            columns = (ReportRow.cluster, ReportRow.statistics, ReportRow.observations, ReportRow.left_out)
            self.summaries = {
                cluster: BeliefSummary(statistics, observations, tuple(left_out))
                for cluster, statistics, observations, left_out in session.execute(select(*columns))
            }
            self.types = session.scalars(select(func.count()).select_from(TypeRow)).one()


def _split(entry: SpeedStatistic) -> tuple[int, int, float, int]:
    return entry.ps, entry.workers, entry.mean_log_speed, entry.count


def _packed(rows: Sequence[Sequence[object]]) -> bytes:
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
