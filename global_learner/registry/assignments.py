"""Registrations of clusters, assignments of versions to them, and their refusals; in the caller's session.

Assignments have their lines in the audit log, in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from foundation.text import nearest
from global_learner.errors import BadRequest, ChangedSince, UnknownCluster, UnknownPolicyVersion
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import ClusterRow, ForgottenClusterRow, RolloutRow, VersionAuditRow, VersionRow
from global_learner.storage.audit import AuditLog, Order
from global_learner.storage.audit_chain import VERSIONS, AuditLine
from policy_net.exchange.rollout_assignment import RolloutAssignment

AUDIT = AuditLog(VersionAuditRow, VERSIONS)
_LARGEST_INTEGER = 2**31 - 1
"""Of a column; numbers in messages may be larger."""
_BACK = "rolled-back"
_MOMENTS_SECONDS = 30.0
"""Two who ask within so long did not see each other's request."""
_ACTIONS = frozenset({"assigned", "unassigned", "brought", "rollout-assigned", "rolled-back", "loss-accepted"})
"""Lines of which a cluster is the subject, and that begin with the two versions of `_move`."""
_MOVE = re.compile(r"v(\d{1,18})(?: beside v\d{1,18})?(?: \([a-z-]+\))? to v(\d{1,18})(?![0-9])", re.ASCII)
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


@dataclass(frozen=True, slots=True)
class VersionMove:
    """A cluster's move from one version to another."""

    from_version: int
    to_version: int


def moves_of(lines: Iterable[AuditLine]) -> Mapping[str, Sequence[VersionMove]]:
    """The moves of every cluster, oldest first."""
    found: dict[str, list[VersionMove]] = {}
    for line in lines:
        match = _MOVE.match(line.detail) if line.action in _ACTIONS else None
        if match is not None and match[1] != match[2]:
            found.setdefault(line.subject, []).append(VersionMove(int(match[1]), int(match[2])))
    return found


def version_before(moves: Iterable[VersionMove], version: int) -> int | None:
    """Version on which a cluster acted before its present one; None if it is not known.

    Args:
        moves: oldest first.
        version: the present one; publishing with `auto_assign` moves clusters without a line.
    """
    before: list[int] = []
    last = None
    for move in moves:
        if move.from_version != last and last is not None:
            before.clear()  # it was moved in between, and nobody wrote down how
        if before and before[-1] == move.to_version:
            before.pop()
        else:
            before.append(move.from_version)
        last = move.to_version
    return before[-1] if before and last == version else None


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """A cluster's assignment, before and after."""

    cluster: str
    from_version: int
    to_version: int
    held: bool


def version_row(session: Session, version: int) -> VersionRow:
    """A version's row.

    Raises:
        UnknownPolicyVersion: there is none of this number.
    """
    row = session.get(VersionRow, version) if version <= _LARGEST_INTEGER else None
    if row is None:
        raise UnknownPolicyVersion(f"there is no version v{version}; see `policyctl version list`")
    return row


def kept_row(session: Session, version: int) -> VersionRow:
    """A version's row.

    Raises:
        UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
    """
    row = version_row(session, version)
    if not row.kept:
        raise UnknownPolicyVersion(
            f"v{version} is no longer kept: retention removed its file, or it was lost; `policyctl version list` shows "
            "which are kept"
        )
    return row


def assign(
    session: Session,
    version: int,
    spec_digest: str,
    clusters: Collection[str] | None,
    order: Order,
    gone: Collection[str] = (),
) -> list[AssignmentChange]:
    """Let clusters act on a version, and hold them there; None is all that ever registered.

    Args:
        gone: revoked clusters, which are left out of all.

    Raises:
        UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
        UnknownCluster: one of them is not registered; none is changed.
        BadRequest: the version is of another spec than this learner's, or there is no cluster.
    """
    _check_spec(kept_row(session, version), spec_digest)
    return _move(session, cluster_rows(session, clusters, gone), version, held=True, order=order)


def way_back(
    session: Session, spec_digest: str, clusters: Collection[str] | None, hold: bool, gone: Collection[str] = ()
) -> list[AssignmentChange]:
    """Changes that would take clusters back to the version before; None is all that ever registered.

    Of all clusters, one without a known version before stays where it is.

    Args:
        hold: whether those that move are held, as something would move them on by itself; who was held is in any case.
        gone: see `assign`.

    Raises:
        UnknownPolicyVersion: one of the versions is no longer kept.
        UnknownCluster: one of the clusters is not registered.
        BadRequest: of one that was named, or of all, no version before is known; or it is of another spec.
    """
    moves = moves_of(AUDIT.entries(session))
    found = []
    for row in cluster_rows(session, clusters, gone):
        before = version_before(moves.get(row.cluster, ()), row.assigned_version)
        if before is None and clusters is not None:
            raise BadRequest(
                f"nothing is written of a version on which {row.cluster} acted before v{row.assigned_version}, so "
                "nothing was changed; name one with `policyctl assign`"
            )
        if before is not None:
            _check_spec(kept_row(session, before), spec_digest)
        to_version = before or row.assigned_version
        found.append(
            AssignmentChange(row.cluster, row.assigned_version, to_version, row.held or (hold and before is not None))
        )
    if all(entry.from_version == entry.to_version for entry in found):
        raise BadRequest("nothing is written of versions on which clusters acted before; use `policyctl assign`")
    return found


def go_back(session: Session, way: Sequence[AssignmentChange], order: Order) -> None:
    """Carry out the changes of `way_back`."""
    for entry in way:
        if entry.from_version != entry.to_version:
            rows = cluster_rows(session, [entry.cluster])
            _move(session, rows, entry.to_version, entry.held, order, action=_BACK)


def release(
    session: Session,
    clusters: Collection[str] | None,
    to_newest: bool,
    order: Order,
    gone: Collection[str] = (),
) -> list[AssignmentChange]:
    """Let clusters act on the fleet's version (`fleet_version`).

    Raises:
        UnknownCluster, BadRequest: as `assign`.
    """
    version = fleet_version(session, to_newest)
    return _move(session, cluster_rows(session, clusters, gone), version, held=False, order=order)


def bring(session: Session, version: int, order: Order) -> list[AssignmentChange]:
    """Let clusters of which no operator and no rollout decides act on a version; those that did not yet.

    Raises:
        UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
    """
    kept_row(session, version)
    free = select(ClusterRow).where(
        ClusterRow.held.is_(False), ClusterRow.rollout == 0, ClusterRow.assigned_version != version
    )
    rows = list(session.scalars(free.order_by(ClusterRow.cluster)))
    return _move(session, rows, version, held=False, order=order, action="brought")


def check_seen(session: Session, seen: Mapping[str, int], *, moves_on: bool) -> None:
    """Raise ChangedSince unless clusters are still to act on what an operator saw: no change of another is undone.

    Args:
        seen: clusters with the version that each was to act on; others are not compared.
        moves_on: whether clusters that nobody holds go on to new versions by themselves, and are not compared.
    """
    if not seen:
        return
    for row in session.scalars(select(ClusterRow).order_by(ClusterRow.cluster)):
        if row.assigned_version != seen.get(row.cluster, row.assigned_version) and (row.held or not moves_on):
            raise ChangedSince(
                f"{row.cluster} is to act on v{row.assigned_version} by now, not on v{seen[row.cluster]} as when you "
                "looked, so nothing was changed: look at `policyctl fleet` and `policyctl audit`, and ask again"
            )


def check_not_just_taken_back(session: Session, way: Sequence[AssignmentChange], now: float) -> None:
    """Raise ChangedSince if a cluster was taken back moments ago: two operators who mean one step would make two."""
    going = {entry.cluster: entry.from_version for entry in way if entry.from_version != entry.to_version}
    for line in AUDIT.entries(session, now - _MOMENTS_SECONDS):
        if line.action == _BACK and line.subject in going:
            raise ChangedSince(
                f"{line.subject}: {line.actor} took it back {max(0.0, now - line.unix_seconds):.0f} s ago "
                f"({line.detail[:100]}), so nothing was changed; to go back further, add --from v{going[line.subject]}"
            )


def note_refusal(session: Session, cluster: str, version: int, reason: str, now: float) -> None:
    """Log that a cluster does not act on a version, unless that is logged, or there is no such version."""
    detail = f"v{version}: {reason}"
    there = version <= _LARGEST_INTEGER and session.get(VersionRow, version) is not None
    if there and not AUDIT.holds(session, "version-refused", cluster, detail):
        AUDIT.record(session, now, cluster, "version-refused", cluster, detail)


def cluster_rows(session: Session, clusters: Collection[str] | None, gone: Collection[str] = ()) -> list[ClusterRow]:
    """Rows of clusters, by name; None is all but `gone`.

    Raises:
        UnknownCluster: one of them is not registered.
        BadRequest: there is no cluster.
    """
    chosen = select(ClusterRow).order_by(ClusterRow.cluster)
    if clusters is not None:
        chosen = chosen.where(ClusterRow.cluster.in_(set(clusters)))
    rows = list(session.scalars(chosen))
    missing = sorted(set(clusters or ()) - {row.cluster for row in rows})
    if missing:
        near = nearest(missing[0], session.scalars(select(ClusterRow.cluster)).all())
        advice = f"did you mean {near}?" if near and len(missing) == 1 else "`policyctl fleet` shows which are"
        raise UnknownCluster(
            f"no cluster {', '.join(map(repr, missing))} is registered, so nothing was changed; {advice}"
        )
    if clusters is None and rows:
        rows = [row for row in rows if row.cluster not in gone]
        if not rows:
            raise BadRequest("all clusters that are registered were revoked, so nothing was changed")
    if not rows:
        raise BadRequest("no cluster is registered yet; start an agent first")
    return rows


def _check_spec(target: VersionRow, spec_digest: str) -> None:
    if target.spec_digest != spec_digest:
        raise BadRequest(
            f"v{target.version} is of spec {target.spec_digest[:12]}, the fleet's is {spec_digest[:12]}: agents cannot "
            "run it"
        )


def _move(
    session: Session,
    rows: list[ClusterRow],
    version: int,
    held: bool,
    order: Order,
    action: str = "",
) -> list[AssignmentChange]:
    done = []
    for row in rows:
        done.append(AssignmentChange(row.cluster, row.assigned_version, version, held))
        if (row.assigned_version, row.held) != (version, held):
            done_by_hand = "assigned" if held else "unassigned"
            detail = order.words(f"v{row.assigned_version} to v{version}")
            AUDIT.record(session, order.unix_seconds, order.actor, action or done_by_hand, row.cluster, detail)
            row.assigned_version, row.held = version, held
    return done
