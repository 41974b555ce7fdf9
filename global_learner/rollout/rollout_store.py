"""Store of rollouts: their states and events, in the registry's database.

An event is stored in one transaction with what follows: the new state, the clusters' assignments and the audit lines.
Every method blocks; the learner calls them on the registry's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy import select
from sqlalchemy.orm import Session

from global_learner.errors import (
    BadRequest,
    ChangedSince,
    RolloutRefused,
    StateUnusable,
    UnknownPolicyVersion,
    UnknownRollout,
)
from global_learner.registry import assignments
from global_learner.registry.assignments import AUDIT, AssignmentChange, ClusterRegistration, registration
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.registry import Registry
from global_learner.registry.tables import ClusterRow, RolloutEventRow, RolloutRow
from global_learner.rollout.machine import FleetCluster, start, step
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.sketch_store import freeze
from global_learner.rollout.state import (
    Abort,
    Event,
    EventContent,
    Jcts,
    Pause,
    Pin,
    RolloutAuditLine,
    RolloutPhase,
    RolloutState,
    Transition,
    VersionDamaged,
    VersionGone,
    VersionRole,
    rollout_assignment_of,
    seed_of,
)
from global_learner.storage.audit import KEEPER, Order


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A rollout as it is stored: its state, the seed of its coins, who began it and why."""

    state: RolloutState
    seed: int
    actor: str
    why: str


@dataclass(frozen=True, slots=True)
class SeenRollout:
    """State of a rollout that an operator saw: its number, and that of its latest event."""

    number: int
    event_number: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Outcome of events or of an operator's assignment.

    Attributes:
        redirected: clusters with another version or another rollout assignment.
        lines: of the audit log.
        pinned: clusters that the running rollout leaves alone from now on.
        assigned: by an operator.
    """

    record: RolloutRecord | None
    redirected: tuple[ClusterRegistration, ...] = ()
    lines: tuple[RolloutAuditLine, ...] = ()
    pinned: tuple[str, ...] = ()
    assigned: tuple[AssignmentChange, ...] = ()


class RolloutStore:
    """All rollouts of a learner; at most one of them runs."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def latest(self) -> RolloutRecord | None:
        """The latest rollout; None before the first one."""
        with self._registry.session() as session:
            row = _latest(session)
            return None if row is None else _record(row)

    def record(self, number: int) -> RolloutRecord:
        """One rollout; 0 is the latest.

        Raises:
            UnknownRollout: there is none of this number.
        """
        with self._registry.session() as session:
            row = _latest(session) if number == 0 else session.get(RolloutRow, min(number, 2**31 - 1))
            if row is None or (number and row.number != number):
                if number:
                    raise UnknownRollout(f"there is no rollout {number}; `policyctl rollout history` shows all")
                raise UnknownRollout("there was no rollout yet; `policyctl rollout start VERSION` begins one")
            return _record(row)

    def records(self) -> list[RolloutRecord]:
        """All rollouts, oldest first."""
        with self._registry.session() as session:
            return [_record(row) for row in session.scalars(select(RolloutRow).order_by(RolloutRow.number))]

    def newest(self, most: int) -> list[RolloutRecord]:
        """The newest rollouts, newest first."""
        newest = select(RolloutRow).order_by(RolloutRow.number.desc()).limit(most)
        with self._registry.session() as session:
            return [_record(row) for row in session.scalars(newest)]

    def start(
        self,
        version: int,
        plan: RolloutPlan,
        spec_digest: str,
        away: Collection[str],
        gone: Collection[str],
        jcts: Jcts,
        order: Order,
    ) -> Taken:
        """Begin a rollout of a version, or only say what would come of it.

        Args:
            away: silent clusters.
            gone: clusters that were turned out.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            RolloutRefused: its file is damaged, one is running, no stage may begin now, or nobody would take part.
            BadRequest: it is of another spec, or the plan names a cluster that is not registered.
        """
        card, spec = self._registry.version(version)
        if spec.digest != spec_digest:
            raise BadRequest(
                f"v{version} is of spec {spec.digest[:12]}, the fleet's is {spec_digest[:12]}: agents cannot run it"
            )
        try:
            self._registry.policy_bytes(version)
        except StateUnusable as error:
            raise RolloutRefused(
                f"the file of v{card.version} is damaged or gone: restore it, or name another version "
                "(`policyctl version verify`)"
            ) from error
        now = order.unix_seconds
        with self._changing(order) as session:
            begun = _begin(session, version, plan, away, gone, order)
            number, seed = begun.state.number, seed_of(begun.state.number, now)
            row = RolloutRow(number=number, candidate=version, seed=seed, actor=order.actor[:63], why=order.why)
            _keep(row, begun.state)
            session.add(row)
            session.flush()
            _note_event(session, number, 0, order, "", begun)
            if begun.state.current_stage.kind == "gate":
                freeze(session, number, row.seed, {member.cluster for member in begun.state.members})
            redirected = _apply(session, row, [begun], jcts, now)
            return Taken(_record(row), redirected, begun.audit)

    def take(
        self,
        number: int,
        contents: Sequence[EventContent],
        jcts: Jcts,
        order: Order,
        *,
        seen: SeenRollout | None = None,
    ) -> Taken:
        """Take events of a rollout, in order, all or none; nothing if it is over, or another one runs by now.

        Args:
            seen: by the operator whose event it is; None: not compared.

        Raises:
            RolloutRefused: an operator's event does not suit where it stands.
            ChangedSince: it went on since it was seen.
            BadRequest: it names a cluster that the rollout does not know.
        """
        with self._changing(order) as session:
            row = _latest(session)
            if row is None or row.number != number:
                return Taken(None)
            _check_seen(session, _state(row), seen, contents)
            redirected, lines = _take(session, row, contents, jcts, order)
            return Taken(_record(row), redirected, lines)

    def assign(
        self,
        version: int,
        spec_digest: str,
        clusters: Collection[str] | None,
        order: Order,
        to_newest: bool,
        gone: Collection[str] = (),
        seen: Mapping[str, int] = MappingProxyType({}),
    ) -> Taken:
        """Assign a version by an operator's order; a running rollout leaves these clusters alone from now on.

        Args:
            version: 0 takes an earlier order back.
            clusters: None is all that ever registered.
            to_newest: as `assignments.release`.
            gone: clusters that were turned out.
            seen: see `assignments.check_seen`.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            StateUnusable: its file is damaged.
            ChangedSince: a cluster is to act on something else than was seen; nothing was changed.
            UnknownCluster, BadRequest: see `assignments.assign`; nothing was changed.
        """
        if version:
            self._registry.policy_bytes(version)
        with self._changing(order) as session:
            assignments.check_seen(session, seen, moves_on=to_newest)
            row = _latest(session)
            redirected: tuple[ClusterRegistration, ...] = ()
            pinned: list[str] = []
            if row is not None and not row.over:
                named = None if clusters is None else set(clusters)
                pinned = [
                    member.cluster
                    for member in _state(row).members
                    if member.role is not VersionRole.PINNED
                    and (member.cluster in named if named else member.cluster not in gone)
                ]
                redirected, _ = _take(session, row, [Pin(cluster=cluster) for cluster in pinned], {}, order)
            if version:
                done = assignments.assign(session, version, spec_digest, clusters, order, gone)
            else:
                done = assignments.release(session, clusters, to_newest, order, gone)
            session.flush()
            touched = {entry.cluster for entry in done} | {entry.cluster for entry in redirected}
            record = None if row is None else _record(row)
            return Taken(record, _registrations(session, touched), (), tuple(pinned), tuple(done))

    def go_back(
        self,
        spec_digest: str,
        clusters: Collection[str] | None,
        order: Order,
        *,
        hold: bool,
        gone: Collection[str] = (),
        seen: Mapping[str, int] = MappingProxyType({}),
        just_looked: bool = False,
    ) -> Taken:
        """Assign the version before by an operator's order, or only say what would come of it.

        Args:
            clusters: None is all that ever registered.
            hold: see `assignments.way_back`.
            seen: see `assignments.check_seen`.
            just_looked: nobody has seen it: what was taken back moments ago is not taken back further.

        Raises:
            RolloutRefused: a rollout runs.
            ChangedSince: a cluster is to act on something else than was seen.
            UnknownPolicyVersion, UnknownCluster, BadRequest: see `assignments.way_back`; nothing was changed.
            StateUnusable: a version's file is damaged.
        """
        with self._registry.session() as session:
            running = _latest(session)
            if running is not None and not running.over:
                raise RolloutRefused(
                    f"rollout {running.number} of v{running.candidate} is {running.phase}: `policyctl rollout abort` "
                    "takes its version back, and then clusters can go back further"
                )
            assignments.check_seen(session, seen, moves_on=hold)
            way = tuple(assignments.way_back(session, spec_digest, clusters, hold, gone))
            if just_looked:
                assignments.check_not_just_taken_back(session, way, order.unix_seconds)
        for version in {entry.to_version for entry in way}:
            self._registry.policy_bytes(version)
        if order.dry_run:
            return Taken(None, assigned=way)
        with self._registry.transaction() as session:
            assignments.go_back(session, way, order)
            session.flush()
            return Taken(None, _registrations(session, [entry.cluster for entry in way]), assigned=way)

    def missing_versions(self, state: RolloutState) -> list[VersionGone | VersionDamaged]:
        """Events for versions that a rollout may still need, and that are gone or damaged."""
        needed = {member.incumbent for member in state.members if member.role is not VersionRole.PINNED}
        if state.phase is not RolloutPhase.ROLLING_BACK:
            needed.add(state.candidate)
        missing: list[VersionGone | VersionDamaged] = []
        for version in sorted(needed):
            try:
                is_whole = self._registry.is_whole(version)
            except UnknownPolicyVersion:
                if version != FIRST_VERSION:
                    missing.append(VersionGone(version=version, instead=FIRST_VERSION))
            else:
                # Clusters that have it act on it meanwhile. Told again in another phase it would change nothing.
                if not is_whole and state.phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING):
                    missing.append(VersionDamaged(version=version))
        return missing

    def _changing(self, order: Order) -> AbstractContextManager[Session]:
        """A transaction; of a dry run a session whose changes are given up at its end."""
        return self._registry.session() if order.dry_run else self._registry.transaction()


def _begin(
    session: Session,
    version: int,
    plan: RolloutPlan,
    away: Collection[str],
    gone: Collection[str],
    order: Order,
) -> Transition:
    assignments.kept_row(session, version)
    latest = _latest(session)
    fleet = {
        row.cluster: FleetCluster(row.assigned_version, row.held, row.cluster in away)
        for row in session.scalars(select(ClusterRow))
        if row.cluster not in gone
    }
    number = 1 if latest is None else latest.number + 1
    running = None if latest is None else _state(latest)
    return start(number, version, plan, fleet, order.unix_seconds, actor=order.actor, why=order.why, running=running)


def _registrations(session: Session, clusters: Collection[str]) -> tuple[ClusterRegistration, ...]:
    rows = session.scalars(select(ClusterRow).where(ClusterRow.cluster.in_(set(clusters)))).all()
    return tuple(map(registration, rows))


def _latest(session: Session) -> RolloutRow | None:
    return session.scalars(select(RolloutRow).order_by(RolloutRow.number.desc()).limit(1)).first()


def _state(row: RolloutRow) -> RolloutState:
    return RolloutState.model_validate_json(row.state)


def _check_seen(
    session: Session, state: RolloutState, seen: SeenRollout | None, contents: Sequence[EventContent]
) -> None:
    """Check that nothing was decided since an operator looked; clusters' reports decide nothing.

    Orders that hold a version back stand whatever the learner itself decided meanwhile.

    Raises:
        ChangedSince: another rollout is the latest, or this one went on.
    """
    if seen is None or (seen.number, seen.event_number) == (state.number, state.events):
        return
    if seen.number != state.number:
        raise ChangedSince(
            f"rollout {state.number} of v{state.candidate} is the latest by now, not {seen.number}, so nothing was "
            "changed: look at `policyctl rollout status`, and ask again"
        )
    since = select(RolloutEventRow).where(
        RolloutEventRow.rollout == state.number, RolloutEventRow.number > seen.event_number
    )
    decided = [row for row in session.scalars(since.order_by(RolloutEventRow.number)) if row.came_of_it]
    if all(isinstance(content, (Abort, Pause, Pin)) for content in contents):
        decided = [row for row in decided if row.actor != KEEPER]
    if decided:
        raise ChangedSince(
            f"rollout {state.number} of v{state.candidate} went on since you looked, so nothing was changed: "
            f"{decided[0].actor}: {decided[0].came_of_it[0][:200]} (event {decided[0].number}); it is {state.phase} in "
            f"stage {state.stage} ({state.current_stage.kind}): look at `policyctl rollout status`, and ask again"
        )


def _record(row: RolloutRow) -> RolloutRecord:
    return RolloutRecord(_state(row), row.seed, row.actor, row.why)


def _take(
    session: Session, row: RolloutRow, contents: Sequence[EventContent], jcts: Jcts, order: Order
) -> tuple[tuple[ClusterRegistration, ...], tuple[RolloutAuditLine, ...]]:
    """Take events in order and store what follows; the redirected clusters, and the audit lines."""
    state, transitions = _state(row), []
    for content in contents:
        event = Event(number=state.events + 1, unix_seconds=order.unix_seconds, actor=order.actor, what=content)
        transition = step(state, event)
        _note_event(session, row.number, event.number, order, event.model_dump_json(), transition)
        transitions.append(transition)
        state = transition.state
    return _apply(session, row, transitions, jcts, order.unix_seconds), tuple(
        line for one in transitions for line in one.audit
    )


def _keep(row: RolloutRow, state: RolloutState) -> None:
    row.phase, row.over = state.phase.value, state.phase.over
    row.versions = sorted({state.candidate, *(member.incumbent for member in state.members)})
    row.state = state.model_dump_json()


def _note_event(session: Session, rollout: int, number: int, order: Order, event: str, transition: Transition) -> None:
    lines = [line.words for line in transition.audit]
    now, actor = order.unix_seconds, order.actor[:63]
    session.add(
        RolloutEventRow(rollout=rollout, number=number, unix_seconds=now, actor=actor, event=event, came_of_it=lines)
    )


def _apply(
    session: Session, row: RolloutRow, transitions: Sequence[Transition], jcts: Jcts, now: float
) -> tuple[ClusterRegistration, ...]:
    """Carry out transitions and store the last state; the redirected clusters."""
    if not transitions:
        return ()
    state = transitions[-1].state
    _keep(row, state)
    clusters = {entry.cluster: entry for entry in session.scalars(select(ClusterRow))}
    redirected: dict[str, ClusterRow] = {}
    for transition in transitions:
        for line in transition.audit:
            AUDIT.record(session, now, line.actor, line.action, line.subject[:63], line.detail)
        for command in transition.commands:
            cluster = clusters.get(command.cluster)
            if cluster is None:
                continue  # its row was lost with a registry that was accepted as it is
            rollout_assignment = rollout_assignment_of(command, state.number, row.seed, jcts.get(command.cluster))
            cluster.assigned_version, cluster.rollout_assignment = (
                command.acting,
                None if rollout_assignment is None else rollout_assignment.to_json(),
            )
            redirected[command.cluster] = cluster
    members = {member.cluster: member for member in state.members}
    for name, cluster in clusters.items():
        member = members.get(name)
        decides = member is not None and member.role is not VersionRole.PINNED and not state.phase.over
        number = state.number if decides else 0
        if cluster.rollout != number or (not number and cluster.rollout_assignment is not None):
            cluster.rollout, cluster.rollout_assignment = number, cluster.rollout_assignment if number else None
            redirected[name] = cluster
    session.flush()
    return tuple(map(registration, redirected.values()))
