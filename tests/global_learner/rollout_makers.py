"""Rollouts for tests: fleets, plans and events in few words."""

from global_learner.rollout.machine import FleetCluster, start, step
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.state import (
    Event,
    EventContent,
    RolloutState,
    StageVerdict,
    Transition,
    VersionRole,
    VersionSeen,
)
from global_learner.rollout.verdicts.verdict import StageOutcome

NOW = 1_800_000_000.0
CANDIDATE = 12


def fleet_of(count: int = 8, acting: int = 7) -> dict[str, FleetCluster]:
    return {f"cluster-{number}": FleetCluster(acting) for number in range(count)}


def started(plan: RolloutPlan | None = None, fleet: dict[str, FleetCluster] | None = None) -> RolloutState:
    return start(1, CANDIDATE, plan or RolloutPlan(), fleet or fleet_of(), NOW, actor="ada").state


def take(state: RolloutState, what: EventContent, at: float = NOW, actor: str = "ada") -> Transition:
    return step(state, Event(number=state.events + 1, unix_seconds=at, actor=actor, what=what))


def passed(state: RolloutState) -> RolloutState:
    return take(state, StageVerdict(stage=state.stage, outcome=StageOutcome.PASS)).state


def at_stage(kind: str, plan: RolloutPlan | None = None, fleet: dict[str, FleetCluster] | None = None) -> RolloutState:
    state = started(plan, fleet)
    while state.current_stage.kind != kind:
        state = passed(state)
    return state


def gone_back(state: RolloutState) -> RolloutState:
    """Every agent has said that it acts on what it had."""
    for member in state.members:
        state = take(state, VersionSeen(cluster=member.cluster, acting=member.incumbent)).state
    return state


def with_role(state: RolloutState, role: VersionRole) -> set[str]:
    return {member.cluster for member in state.members if member.role is role}
