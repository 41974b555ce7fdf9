"""State machine of a rollout: state and event in, new state, commands and audit lines out; no I/O, no clock.

A cluster's assignment follows from its role, and roles change here alone; each change is a command and an audit line.
An event that was taken before changes nothing. `_TABLE` says which events each phase takes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from global_learner.errors import BadRequest, RolloutRefused
from global_learner.registry.version_words import damaged_words
from global_learner.rollout.plan import CanaryStage, FleetStage, RolloutPlan, WaveStage, check_names
from global_learner.rollout.state import (
    Abort,
    Assign,
    Away,
    Event,
    Joined,
    Left,
    Pause,
    Pin,
    Promote,
    Resume,
    RolloutAuditLine,
    RolloutMember,
    RolloutPhase,
    RolloutState,
    StageVerdict,
    Transition,
    VersionDamaged,
    VersionGone,
    VersionRole,
    VersionSeen,
)
from global_learner.rollout.verdicts.verdict import StageOutcome


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """A cluster as a rollout finds it: its assigned version, whether an operator pinned it, whether it is silent."""

    acting: int
    pinned: bool = False
    away: bool = False


def start(
    number: int,
    candidate: int,
    plan: RolloutPlan,
    fleet: Mapping[str, FleetCluster],
    now: float,
    *,
    actor: str,
    why: str = "",
    running: RolloutState | None = None,
) -> Transition:
    """Begin a rollout with its first stage.

    Args:
        number: above those of all rollouts before.
        why: the operator's reason, for the audit log.
        running: the latest rollout.

    Raises:
        RolloutRefused: one is running, no stage may begin now, or nobody would take part.
        BadRequest: the plan names a cluster that is not enrolled.
    """
    if running is not None and not running.phase.over:
        raise RolloutRefused(
            f"rollout {running.number} of v{running.candidate} is {running.phase} (stage {running.current_stage.kind}):"
            " wait for its end, or abort it"
        )
    check_names(plan, fleet)
    frozen = plan.freeze_end(now)
    if frozen is not None:
        raise RolloutRefused(f"the plan lets no stage begin before {_utc(frozen)}: start the rollout then")
    members = tuple(
        RolloutMember(
            cluster=name,
            incumbent=found.acting,
            role=VersionRole.PINNED if found.pinned or name in plan.pinned else VersionRole.INCUMBENT,
            acting=found.acting,
            away=found.away,
        )
        for name, found in sorted(fleet.items())
    )
    if not any(member.role.takes_part and member.incumbent != candidate for member in members):
        raise RolloutRefused(f"no cluster would come to v{candidate} by it: all have it, are pinned, or there is none")
    state = RolloutState(
        number=number,
        candidate=candidate,
        plan=plan,
        stage_unix_seconds=now,
        latest_unix_seconds=now,
        started_unix_seconds=now,
        members=members,
    )
    begun = state.model_copy(update={"members": _entered(state)})
    detail = _because(f"v{candidate}, stage {begun.current_stage.kind}", why)
    return _transition(state, begun, actor, ("rollout-started", detail))


def step(state: RolloutState, event: Event) -> Transition:
    """Take an event.

    Raises:
        RolloutRefused: an operator's event does not apply in this phase; it is not taken.
        ValueError: an event before this one is missing.
    """
    if event.number <= state.events:
        return Transition(state)
    if event.number != state.events + 1:
        raise ValueError(f"rollout {state.number}: event {event.number} follows {state.events}: one is missing")
    now = max(state.latest_unix_seconds, event.unix_seconds)
    taken = state.model_copy(update={"events": event.number, "latest_unix_seconds": now})
    rule = _TABLE.get((state.phase, type(event.what)))
    if rule is None:
        if isinstance(event.what, (Promote, Pause, Resume, Abort, Pin)):
            raise RolloutRefused(
                f"rollout {state.number} of v{state.candidate} is {state.phase}: {event.what.kind} does not apply"
            )
        return Transition(taken)
    after, lines = rule(taken, event.what)
    return _transition(taken, after, event.actor, *lines)


Line = tuple[str, str]
"""Action and detail of an audit line about the rollout itself."""
Ruled = tuple[RolloutState, tuple[Line, ...]]


def _on_verdict(state: RolloutState, what: StageVerdict) -> Ruled:
    if what.stage != state.stage:
        return state, ()
    line = ("rollout-verdict", f"stage {state.current_stage.kind}: {what.outcome}; {what.reason}"[:500])
    if what.outcome is StageOutcome.FAIL:
        return _rolling_back(state, f"failed in stage {state.current_stage.kind}: {what.reason}", line)
    worse_off = [member.cluster for member in state.members if member.cluster in what.held and member.role.takes_part]
    if worse_off:
        state = _with_roles(state, dict.fromkeys(worse_off, VersionRole.HELD))
    if what.outcome is StageOutcome.PASS and state.phase is not RolloutPhase.PAUSED:
        frozen = state.plan.freeze_end(state.latest_unix_seconds)
        return (state, ()) if frozen is not None else _advanced(state, line)
    if what.outcome is StageOutcome.INCONCLUSIVE and state.phase is RolloutPhase.RUNNING:
        trying = [
            member.cluster
            for member in state.members
            if member.role in (VersionRole.ALTERNATING, VersionRole.CANDIDATE)
        ]
        if len(trying) < 2:  # nothing that it could still find out would decide anything
            state = _with_roles(state, dict.fromkeys(trying, VersionRole.INCUMBENT))
        reason = f"stage {state.current_stage.kind} brought no verdict: promote or abort"
        return state.model_copy(update={"phase": RolloutPhase.ASKING, "reason": reason}), (line,)
    return state, ()


def _on_promote(state: RolloutState, what: Promote) -> Ruled:
    frozen = state.plan.freeze_end(state.latest_unix_seconds)
    if frozen is not None:
        raise RolloutRefused(f"rollout {state.number}: the plan lets no stage begin before {_utc(frozen)}")
    return _advanced(state, ("rollout-promoted", _because(f"past stage {state.current_stage.kind}", what.why)))


def _on_pause(state: RolloutState, what: Pause) -> Ruled:
    return _paused(state, _because("by an operator", what.why))


def _on_resume(state: RolloutState, what: Resume) -> Ruled:
    return state.model_copy(update={"phase": RolloutPhase.RUNNING, "reason": ""}), (("rollout-resumed", what.why),)


def _on_abort(state: RolloutState, what: Abort) -> Ruled:
    return _rolling_back(state, _because("aborted by an operator", what.why))


def _on_seen(state: RolloutState, what: VersionSeen) -> Ruled:
    return _completed(_with_member(state, what.cluster, acting=what.acting, away=False))


def _on_away(state: RolloutState, what: Away) -> Ruled:
    return _completed(_with_member(state, what.cluster, away=True))


def _on_joined(state: RolloutState, what: Joined) -> Ruled:
    if state.member(what.cluster) is not None:
        return state, ()
    role = VersionRole.PINNED if what.cluster in state.plan.pinned else VersionRole.INCUMBENT
    joined = RolloutMember(cluster=what.cluster, incumbent=what.incumbent, role=role, acting=what.incumbent)
    members = tuple(sorted((*state.members, joined), key=lambda member: member.cluster))
    return state.model_copy(update={"members": members}), (("rollout-joined", what.cluster),)


def _on_left(state: RolloutState, what: Left) -> Ruled:
    members = tuple(member for member in state.members if member.cluster != what.cluster)
    return _completed(state.model_copy(update={"members": members}))


def _on_pin(state: RolloutState, what: Pin) -> Ruled:
    member = state.member(what.cluster)
    if member is None:
        raise BadRequest(f"rollout {state.number} knows no cluster {what.cluster!r}")
    pinned, lines = _completed(_with_roles(state, {what.cluster: VersionRole.PINNED}))
    remark = (("rollout-pinned", _because(what.cluster, what.why)),) if what.why else ()
    return pinned, (*remark, *lines)


def _on_version_gone(state: RolloutState, what: VersionGone) -> Ruled:
    stranded = [member.cluster for member in state.members if member.incumbent == what.version]
    lines: tuple[Line, ...] = ()
    if stranded:
        members = tuple(
            member.model_copy(update={"incumbent": what.instead}) if member.cluster in stranded else member
            for member in state.members
        )
        state = state.model_copy(update={"members": members})
        reason = f"v{what.version} is gone: {', '.join(stranded)} would go back to v{what.instead}"[:500]
        lines = (("rollout-incumbent-gone", reason),)
    if what.version == state.candidate and state.phase is not RolloutPhase.ROLLING_BACK:
        return _rolling_back(state, f"v{what.version} is gone", *lines)
    if stranded and state.phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING):
        paused, more = _paused(state, reason)
        return paused, (*lines, *more)
    return state, lines


def _on_version_damaged(state: RolloutState, what: VersionDamaged) -> Ruled:
    return _paused(state, f"{damaged_words(what.version, False)}, then `policyctl rollout resume`")


def _because(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def _advanced(state: RolloutState, line: Line) -> Ruled:
    """The next stage, or the end behind the last."""
    if isinstance(state.current_stage, FleetStage):
        roles = {member.cluster: VersionRole.CANDIDATE for member in state.members if member.role.takes_part}
        done = _with_roles(state, roles).model_copy(update={"phase": RolloutPhase.DONE, "reason": ""})
        return done, (line, ("rollout-done", f"v{state.candidate} acts in {len(roles)} clusters"))
    entered = state.model_copy(
        update={
            "stage": state.stage + 1,
            "stage_unix_seconds": state.latest_unix_seconds,
            "phase": RolloutPhase.RUNNING,
            "reason": "",
        }
    )
    entered = entered.model_copy(update={"members": _entered(entered)})
    return entered, (line, ("rollout-stage", entered.current_stage.kind))


def _entered(state: RolloutState) -> tuple[RolloutMember, ...]:
    """Clusters as a stage begins: those of earlier stages act on the candidate, its own alternate."""
    stage = state.current_stage
    eligible = [member for member in state.members if member.role.takes_part]
    if stage.kind in ("gate", "shadow"):
        role = VersionRole.SHADOW if stage.kind == "shadow" else VersionRole.INCUMBENT
        return _roles(state.members, {member.cluster: role for member in eligible})
    earlier = {member.cluster for member in eligible if member.role in (VersionRole.ALTERNATING, VersionRole.CANDIDATE)}
    waiting = sorted(
        (member for member in eligible if member.cluster not in earlier),
        key=lambda member: (member.away, _lot(state.number, member.cluster)),
    )
    if isinstance(stage, CanaryStage) and stage.clusters:
        chosen = [member.cluster for member in waiting if member.cluster in stage.clusters]
    else:
        count = len(eligible)
        if isinstance(stage, CanaryStage):
            count = stage.count
        elif isinstance(stage, WaveStage):
            count = math.ceil(stage.share * len(eligible))
        chosen = [member.cluster for member in waiting[: max(0, count - len(earlier))]]
    roles = {member.cluster: VersionRole.INCUMBENT for member in eligible}
    roles.update(dict.fromkeys(earlier, VersionRole.CANDIDATE))
    roles.update(dict.fromkeys(chosen, VersionRole.ALTERNATING))
    changed = _roles(state.members, roles)
    return tuple(
        member.model_copy(update={"since_stage": state.stage, "since_unix_seconds": state.latest_unix_seconds})
        if member.cluster in chosen
        else member
        for member in changed
    )


def _rolling_back(state: RolloutState, reason: str, *before: Line) -> Ruled:
    # Who may act on the candidate is taken to do so until its agent says otherwise.
    members = tuple(
        member.model_copy(update={"acting": state.candidate})
        if member.role in (VersionRole.ALTERNATING, VersionRole.CANDIDATE)
        else member
        for member in state.members
    )
    roles = {member.cluster: VersionRole.INCUMBENT for member in state.members if member.role.takes_part}
    back = state.model_copy(
        update={"members": _roles(members, roles), "phase": RolloutPhase.ROLLING_BACK, "reason": reason[:2000]}
    )
    rolled_back, lines = _completed(back)
    return rolled_back, (*before, ("rollout-rolling-back", reason[:500]), *lines)


def _completed(state: RolloutState) -> Ruled:
    """Rolled back once every cluster that is there acts on its incumbent; others follow on their return."""
    if state.phase is not RolloutPhase.ROLLING_BACK:
        return state, ()
    there = [member for member in state.members if not member.away and member.role is not VersionRole.PINNED]
    if any(member.acting is not None and member.acting != member.incumbent for member in there):
        return state, ()
    return state.model_copy(update={"phase": RolloutPhase.ROLLED_BACK}), (("rollout-rolled-back", state.reason[:500]),)


def _paused(state: RolloutState, reason: str) -> Ruled:
    return state.model_copy(update={"phase": RolloutPhase.PAUSED, "reason": reason}), (("rollout-paused", reason),)


def _with_roles(state: RolloutState, roles: Mapping[str, VersionRole]) -> RolloutState:
    return state.model_copy(update={"members": _roles(state.members, roles)})


def _roles(members: tuple[RolloutMember, ...], roles: Mapping[str, VersionRole]) -> tuple[RolloutMember, ...]:
    return tuple(
        member.model_copy(update={"role": roles[member.cluster]}) if member.cluster in roles else member
        for member in members
    )


def _with_member(state: RolloutState, cluster: str, **changed: Any) -> RolloutState:
    members = tuple(
        member.model_copy(update=changed) if member.cluster == cluster else member for member in state.members
    )
    return state.model_copy(update={"members": members})


def _transition(before: RolloutState, after: RolloutState, actor: str, *lines: Line) -> Transition:
    """The commands and audit lines that follow from a change; nobody else makes either."""
    audit = [RolloutAuditLine(actor, action, f"rollout {after.number}", detail) for action, detail in lines]
    commands = []
    known = {member.cluster: assignment_of(member, before.candidate) for member in before.members}
    for member in after.members:
        reported = assignment_of(member, after.candidate)
        was = known.get(member.cluster)
        if reported == was or was is None:
            continue
        commands.append(reported)
        audit.append(
            RolloutAuditLine(actor, "rollout-assigned", member.cluster, f"{_words_of(was)} to {_words_of(reported)}")
        )
    return Transition(after, tuple(commands), tuple(audit))


def assignment_of(member: RolloutMember, candidate: int) -> Assign:
    """A cluster's assignment, which follows from its role."""
    if member.role is VersionRole.CANDIDATE:
        return Assign(member.cluster, member.role, candidate)
    challenger = candidate if member.role in (VersionRole.SHADOW, VersionRole.ALTERNATING) else None
    return Assign(member.cluster, member.role, member.incumbent, challenger)


def _words_of(reported: Assign) -> str:
    challenger = "" if reported.challenger is None else f" beside v{reported.challenger}"
    return f"v{reported.acting}{challenger} ({reported.role})"


def _lot(number: int, cluster: str) -> bytes:
    """Key by which a rollout draws clusters: another order in each rollout, the same on each machine."""
    return hashlib.sha256(f"rollout\0{number}\0{cluster}".encode()).digest()


def _utc(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


_LIVE = (RolloutPhase.RUNNING, RolloutPhase.ASKING, RolloutPhase.PAUSED)
_GOING = (*_LIVE, RolloutPhase.ROLLING_BACK)
_TABLE: Mapping[tuple[RolloutPhase, type[Any]], Callable[[RolloutState, Any], Ruled]] = MappingProxyType(
    {(phase, StageVerdict): _on_verdict for phase in _LIVE}
    | {(phase, Promote): _on_promote for phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING)}
    | {(phase, Pause): _on_pause for phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING)}
    | {(RolloutPhase.PAUSED, Resume): _on_resume}
    | {(phase, Abort): _on_abort for phase in _LIVE}
    | {(phase, Pin): _on_pin for phase in _GOING}
    | {(phase, VersionSeen): _on_seen for phase in _GOING}
    | {(phase, Away): _on_away for phase in _GOING}
    | {(phase, Joined): _on_joined for phase in _GOING}
    | {(phase, Left): _on_left for phase in _GOING}
    | {(phase, VersionGone): _on_version_gone for phase in _GOING}
    | {(phase, VersionDamaged): _on_version_damaged for phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING)}
)
"""Rule for each phase and event. An operator's event that is not here is refused, any other changes nothing."""
