"""Registrations of clusters: which incarnation each is in, and which version it acts on; in the caller's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from global_learner.errors import BadRequest
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import ClusterRow, ForgottenClusterRow, RolloutRow, VersionRow
from policy_net.exchange.rollout_assignment import RolloutAssignment

_DONE = "done"
"""The phase of a rollout that brought its version to the fleet."""


@dataclass(frozen=True, slots=True)
class LastHeard:
    """When a cluster was heard last, and what it said: on which version it acts (0: nothing), whether it is done."""

    unix_seconds: float
    acting_version: int
    finished: bool = False


@dataclass(frozen=True, slots=True)
class ClusterRegistration:
    """A cluster's durable state.

    Attributes:
        held: an operator assigned its version.
        rollout: the running rollout that decides what it acts on; 0: none does.
        rollout_assignment: what that asks of it besides; None: nothing.
        heard: when it was heard last, as far as it was kept.
    """

    cluster: str
    incarnation: int
    assigned_version: int
    held: bool = False
    rollout: int = 0
    rollout_assignment: RolloutAssignment | None = None
    heard: LastHeard | None = field(default=None, compare=False)


def register(
    session: Session, cluster: str, on_newest: bool, job_types: Sequence[str], unix_seconds: float
) -> ClusterRegistration:
    """Give a cluster its next incarnation; a new one acts on the fleet's version (`fleet_version`)."""
    row = session.get(ClusterRow, cluster)
    if row is None:
        before = session.get(ForgottenClusterRow, cluster)
        begun = 0 if before is None else before.incarnation
        row = ClusterRow(
            cluster=cluster, incarnation=begun, assigned_version=fleet_version(session, on_newest), rollout=0
        )
        row.heard_unix_seconds, row.acting_version, row.finished = 0.0, 0, False
        session.add(row)
    row.incarnation += 1
    row.registered_unix_seconds, row.finished = unix_seconds, False
    row.job_types = list(job_types)
    return registration(row)


def forget(session: Session, cluster: str) -> bool:
    """Keep of a cluster nothing but its incarnation, which updates in the log bear; False if it is not registered.

    Raises:
        BadRequest: a running rollout decides what it acts on.
    """
    row = session.get(ClusterRow, cluster)
    if row is None:
        return False
    if row.rollout:
        raise BadRequest(
            f"rollout {row.rollout} still counts cluster {cluster}: wait until it is over, or `policyctl rollout abort`"
        )
    session.merge(ForgottenClusterRow(cluster=cluster, incarnation=row.incarnation))
    session.delete(row)
    return True


def keep_heard(session: Session, heard: Mapping[str, LastHeard]) -> None:
    """Keep when clusters were heard last, so that it is known after a restart; others stay as they are."""
    for row in session.scalars(select(ClusterRow).where(ClusterRow.cluster.in_(heard))):
        row.heard_unix_seconds = heard[row.cluster].unix_seconds
        row.acting_version, row.finished = heard[row.cluster].acting_version, heard[row.cluster].finished


def renew_incarnations(session: Session, applied: Mapping[str, int]) -> None:
    """Make every cluster register again, beyond the incarnations of which updates were applied."""
    for row in session.scalars(select(ClusterRow)):
        row.incarnation = max(row.incarnation, applied.get(row.cluster, 0)) + 1
    for gone in session.scalars(select(ForgottenClusterRow)):
        gone.incarnation = max(gone.incarnation, applied.get(gone.cluster, 0)) + 1


def all_registrations(session: Session) -> list[ClusterRegistration]:
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


def registration(row: ClusterRow) -> ClusterRegistration:
    """What a row says."""
    rollout_assignment = None if row.rollout_assignment is None else RolloutAssignment.from_json(row.rollout_assignment)
    heard = LastHeard(max(row.heard_unix_seconds, row.registered_unix_seconds), row.acting_version, row.finished)
    return ClusterRegistration(
        row.cluster, row.incarnation, row.assigned_version, row.held, row.rollout, rollout_assignment, heard
    )
