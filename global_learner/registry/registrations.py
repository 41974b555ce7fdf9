"""Registrations of clusters: which incarnation each is in, and which version it acts on; in the caller's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import ClusterRow, VersionRow


@dataclass(frozen=True, slots=True)
class Registration:
    """A cluster's durable state."""

    cluster: str
    incarnation: int
    assigned_version: int
    held: bool = False


def register(
    session: Session, cluster: str, on_newest: bool, job_types: Sequence[str], unix_seconds: float
) -> Registration:
    """Give a cluster its next incarnation; a new one acts on v1, or on the newest version."""
    row = session.get(ClusterRow, cluster)
    if row is None:
        newest = session.scalars(select(func.max(VersionRow.version)).where(VersionRow.kept)).one()
        row = ClusterRow(cluster=cluster, incarnation=0, assigned_version=newest if on_newest else FIRST_VERSION)
        session.add(row)
    row.incarnation += 1
    row.registered_unix_seconds = unix_seconds
    row.job_types = list(job_types)
    return _registration(row)


def renew_incarnations(session: Session, applied: Mapping[str, int]) -> None:
    """Make every cluster register again, beyond the incarnations of which updates were applied."""
    for row in session.scalars(select(ClusterRow)):
        row.incarnation = max(row.incarnation, applied.get(row.cluster, 0)) + 1


def all_registrations(session: Session) -> list[Registration]:
    """All clusters that ever registered, by name."""
    return [_registration(row) for row in session.scalars(select(ClusterRow).order_by(ClusterRow.cluster))]


def _registration(row: ClusterRow) -> Registration:
    return Registration(row.cluster, row.incarnation, row.assigned_version, row.held)
