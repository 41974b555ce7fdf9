"""Registrations of clusters: which incarnation each is in, and which version it acts on; in the caller's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import ClusterRow, RolloutRow, VersionRow
from policy_net.exchange.rollout_duty import RolloutDuty

_DONE = "done"
"""The phase of a rollout that brought its version to the fleet."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A cluster's durable state.

    Attributes:
        held: an operator assigned its version.
        rollout: the running rollout that decides what it acts on; 0: none does.
        duty: what that asks of it besides; None: nothing.
    """

    cluster: str
    incarnation: int
    assigned_version: int
    held: bool = False
    rollout: int = 0
    duty: RolloutDuty | None = None


def register(
    session: Session, cluster: str, on_newest: bool, job_types: Sequence[str], unix_seconds: float
) -> Registration:
    """Give a cluster its next incarnation; a new one acts on the fleet's version (`fleet_version`)."""
    row = session.get(ClusterRow, cluster)
    if row is None:
        row = ClusterRow(cluster=cluster, incarnation=0, assigned_version=fleet_version(session, on_newest), rollout=0)
        session.add(row)
    row.incarnation += 1
    row.registered_unix_seconds = unix_seconds
    row.job_types = list(job_types)
    return registration(row)


def renew_incarnations(session: Session, applied: Mapping[str, int]) -> None:
    """Make every cluster register again, beyond the incarnations of which updates were applied."""
    for row in session.scalars(select(ClusterRow)):
        row.incarnation = max(row.incarnation, applied.get(row.cluster, 0)) + 1


def all_registrations(session: Session) -> list[Registration]:
    """All clusters that ever registered, by name."""
    return [registration(row) for row in session.scalars(select(ClusterRow).order_by(ClusterRow.cluster))]


def fleet_version(session: Session, on_newest: bool) -> int:
    """What a cluster acts on of which nobody said anything: the newest version, or what the latest rollout brought.

    Without a rollout that is done it is v1.
    """
    kept = select(func.max(VersionRow.version)).where(VersionRow.kept)
    if on_newest:
        return session.scalars(kept).one()
    done = latest_done(session)
    return FIRST_VERSION if done is None or not session.get_one(VersionRow, done).kept else done


def latest_done(session: Session) -> int | None:
    """The version of the latest rollout that came to its end; None without one."""
    done = select(RolloutRow.candidate).where(RolloutRow.phase == _DONE).order_by(RolloutRow.number.desc()).limit(1)
    return session.scalars(done).first()


def registration(row: ClusterRow) -> Registration:
    """What a row says."""
    duty = None if row.duty is None else RolloutDuty.from_json(row.duty)
    return Registration(row.cluster, row.incarnation, row.assigned_version, row.held, row.rollout, duty)
