"""Registrations of clusters: incarnation and version of each; in the caller's session."""

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
    """A cluster's last heartbeat: its moment, the version on which it acts (0: not known), whether it has finished."""

    unix_seconds: float
    acting_version: int
    finished: bool = False


@dataclass(frozen=True, slots=True)
class ClusterRegistration:
    """A cluster's durable state.

    Attributes:
        held: whether an operator assigned its version.
        rollout: number of the running rollout that decides its version; 0: none does.
        rollout_assignment: further request of that rollout.
        heard: last heartbeat, as far as it was kept.
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
    """Keep of a cluster only its incarnation, by which the log names its updates; False if it is not registered.

    Raises BadRequest while a running rollout decides its version.
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
    """Keep last heartbeats of clusters for after a restart."""
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
    """Version of a cluster without an own assignment: the newest, else that of the latest done rollout, else v1."""
    kept = select(func.max(VersionRow.version)).where(VersionRow.kept)
    if on_newest:
        return session.scalars(kept).one()
    done = latest_done(session)
    return FIRST_VERSION if done is None or not session.get_one(VersionRow, done).kept else done


def latest_done(session: Session) -> int | None:
    """Version of the latest done rollout; None without one."""
    done = select(RolloutRow.candidate).where(RolloutRow.phase == _DONE).order_by(RolloutRow.number.desc()).limit(1)
    return session.scalars(done).first()


def registration(row: ClusterRow) -> ClusterRegistration:
    """Registration of a row."""
    rollout_assignment = None if row.rollout_assignment is None else RolloutAssignment.from_json(row.rollout_assignment)
    heard = LastHeard(max(row.heard_unix_seconds, row.registered_unix_seconds), row.acting_version, row.finished)
    return ClusterRegistration(
        row.cluster, row.incarnation, row.assigned_version, row.held, row.rollout, rollout_assignment, heard
    )
