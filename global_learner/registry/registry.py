"""Which versions exist, which cluster acts on which, and each cluster's incarnation: durable before it is told.

SQLite in WAL mode with full synchronisation: a commit survives a crash of the process and of the machine. Every method
blocks; the learner calls them on one thread of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, func, select, update
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from global_learner.errors import StateUnusable, UnknownPolicyVersion
from global_learner.registry.policy_store import PolicyStore
from global_learner.registry.tables import Base, ClusterRow, VersionRow
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, spec_from_json
from policy_net.exchange.set_spec import Spec
from policy_net.exchange.statistics import SpeedStatistic

FIRST_VERSION = 1
_LARGEST_INTEGER = 2**63 - 1
"""SQLite's; the wire's numbers go to twice as much."""


@dataclass(frozen=True, slots=True)
class VersionCard:
    """What is known of a version, as in `fleet.proto`."""

    version: int
    head_step: int
    parent: int
    digest: str
    spec_digest: str
    created_unix_seconds: float
    size_bytes: int
    updates: int = 0
    contributions: dict[str, int] = field(default_factory=dict)
    staleness_p50: float = 0.0


@dataclass(frozen=True, slots=True)
class Registration:
    """A cluster's durable state."""

    cluster: str
    incarnation: int
    assigned_version: int


class Registry:
    """Versions, assignments and incarnations in one SQLite file, policy files beside it."""

    def __init__(self, state_dir: Path) -> None:
        """Open or create.

        Raises:
            StateUnusable: the file is no registry or cannot be opened.
        """
        self._path = state_dir / "registry.sqlite"
        folder = state_dir / "policies"
        folder.mkdir(exist_ok=True)
        self._policies = PolicyStore(folder)
        self._engine = create_engine(f"sqlite:///{self._path}")
        event.listen(self._engine, "connect", be_durable)
        try:
            Base.metadata.create_all(self._engine)
        except DatabaseError as error:
            raise StateUnusable(f"{self._path}: no usable registry ({error.orig})") from error

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()

    def publish(
        self,
        policy: PolicyFile,
        head_step: int,
        created_unix_seconds: float,
        contributions: dict[str, int],
        staleness_p50: float,
        assign_all: bool,
    ) -> VersionCard:
        """Add the next version, v1 if there is none; with `assign_all` every cluster acts on it from now on."""
        data = policy.to_bytes()
        digest = self._policies.add(data)
        with Session(self._engine) as session, session.begin():
            newest = session.scalars(select(VersionRow).order_by(VersionRow.version.desc()).limit(1)).first()
            row = VersionRow(
                version=newest.version + 1 if newest else FIRST_VERSION,
                head_step=head_step,
                parent=newest.version if newest else 0,
                digest=digest,
                spec_digest=policy.spec.digest,
                spec_json=policy.spec.to_json(),
                created_unix_seconds=created_unix_seconds,
                size_bytes=len(data),
                updates=sum(contributions.values()),
                contributions=contributions,
                staleness_p50=staleness_p50,
            )
            session.add(row)
            session.flush()
            if assign_all:
                session.execute(update(ClusterRow).values(assigned_version=row.version))
            return _card(row)

    def versions(self) -> list[VersionCard]:
        """All cards, oldest first."""
        with Session(self._engine) as session:
            return [_card(row) for row in session.scalars(select(VersionRow).order_by(VersionRow.version))]

    def newest(self) -> VersionCard | None:
        """The newest version's card; None in a new registry."""
        with Session(self._engine) as session:
            row = session.scalars(select(VersionRow).order_by(VersionRow.version.desc()).limit(1)).first()
            return _card(row) if row else None

    def version(self, version: int) -> tuple[VersionCard, Spec]:
        """One version's card and spec.

        Raises:
            UnknownPolicyVersion: there is none of this number.
        """
        with Session(self._engine) as session:
            row = session.get(VersionRow, version) if version <= _LARGEST_INTEGER else None
            if row is None:
                raise UnknownPolicyVersion(f"there is no version v{version}; see `policyctl version list`")
            return _card(row), spec_from_json(row.spec_json)

    def policy_bytes(self, version: int) -> tuple[VersionCard, bytes]:
        """A version's policy file, checked against its digest.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            StateUnusable: the file is damaged.
        """
        card, _ = self.version(version)
        try:
            return card, self._policies.read(card.digest)
        except UnknownPolicyVersion as error:
            raise UnknownPolicyVersion(f"v{version}: {error}") from error

    def first_priors(self) -> tuple[SpeedStatistic, ...]:
        """What v1 says of speeds.

        Raises:
            UnknownPolicyVersion, StateUnusable: as `policy_bytes`.
        """
        _, data = self.policy_bytes(FIRST_VERSION)
        return parse_policy_file(data, f"v{FIRST_VERSION}").priors

    def register(
        self, cluster: str, on_newest: bool, job_types: Sequence[str], registered_unix_seconds: float
    ) -> Registration:
        """Give a cluster its next incarnation; a new one acts on v1, or on the newest version."""
        with Session(self._engine) as session, session.begin():
            row = session.get(ClusterRow, cluster)
            if row is None:
                newest = session.scalars(select(func.max(VersionRow.version))).one()
                row = ClusterRow(
                    cluster=cluster, incarnation=0, assigned_version=newest if on_newest else FIRST_VERSION
                )
                session.add(row)
            row.incarnation += 1
            row.registered_unix_seconds = registered_unix_seconds
            row.job_types = list(job_types)
            return Registration(cluster, row.incarnation, row.assigned_version)

    def registrations(self) -> list[Registration]:
        """All clusters that ever registered, by name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(ClusterRow).order_by(ClusterRow.cluster))
            return [Registration(row.cluster, row.incarnation, row.assigned_version) for row in rows]

    def prune(self, keep_versions: int) -> int:
        """Remove policy files beyond v1, the assigned and the newest so many; how many. Cards stay. 0 keeps all."""
        if keep_versions == 0:
            return 0
        with Session(self._engine) as session, session.begin():
            assigned = set(session.scalars(select(ClusterRow.assigned_version)))
            rows = session.scalars(
                select(VersionRow).where(VersionRow.kept).order_by(VersionRow.version.desc()).offset(keep_versions)
            ).all()
            stale = [row for row in rows if row.version != FIRST_VERSION and row.version not in assigned]
            still_used = set(session.scalars(select(VersionRow.digest).where(VersionRow.kept)))
            for row in stale:
                row.kept = False
            session.flush()
            kept = set(session.scalars(select(VersionRow.digest).where(VersionRow.kept)))
        for digest in still_used - kept:
            self._policies.remove(digest)
        return len(stale)


def _card(row: VersionRow) -> VersionCard:
    return VersionCard(
        version=row.version,
        head_step=row.head_step,
        parent=row.parent,
        digest=row.digest,
        spec_digest=row.spec_digest,
        created_unix_seconds=row.created_unix_seconds,
        size_bytes=row.size_bytes,
        updates=row.updates,
        contributions=dict(row.contributions),
        staleness_p50=row.staleness_p50,
    )


def be_durable(connection: Any, _record: object) -> None:
    """What every connection to a database of the learner begins with: WAL, synced at every commit; foreign keys."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
