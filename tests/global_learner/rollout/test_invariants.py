"""What holds of every rollout, whatever happens to it in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_makers import CANDIDATE, NOW, fleet_of

from global_learner.errors import BadRequest, RolloutRefused
from global_learner.rollout.machine import FleetCluster, assignment_of, start, step
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.state import (
    Abort,
    Away,
    Event,
    Joined,
    Left,
    Pause,
    Pin,
    Promote,
    Resume,
    RolloutPhase,
    RolloutState,
    StageVerdict,
    VersionDamaged,
    VersionGone,
    VersionRole,
    VersionSeen,
)
from global_learner.rollout.verdicts.verdict import StageOutcome

CLUSTERS = st.sampled_from([*fleet_of(5), "stranger"])
VERSIONS = st.sampled_from([1, 7, 8, CANDIDATE])
WHATS = st.one_of(
    st.builds(StageVerdict, stage=st.integers(0, 4), outcome=st.sampled_from(StageOutcome), held=st.tuples(CLUSTERS)),
    st.builds(Promote),
    st.builds(Pause),
    st.builds(Resume),
    st.builds(Abort),
    st.builds(VersionSeen, cluster=CLUSTERS, acting=VERSIONS),
    st.builds(Away, cluster=CLUSTERS),
    st.builds(Joined, cluster=CLUSTERS, incumbent=VERSIONS),
    st.builds(Left, cluster=CLUSTERS),
    st.builds(Pin, cluster=CLUSTERS),
    st.builds(VersionGone, version=VERSIONS, instead=st.just(1)),
    st.builds(VersionDamaged, version=VERSIONS),
)
HISTORIES = st.lists(st.tuples(WHATS, st.floats(-2e5, 2e5)), max_size=30)
FLEETS = st.dictionaries(
    st.sampled_from(sorted(fleet_of(5))), st.builds(FleetCluster, st.sampled_from([7, 8])), min_size=1
)


def _lived(fleet, history):  # type: ignore[no-untyped-def]
    """Every state with the event and what came of it."""
    transition = start(1, CANDIDATE, RolloutPlan(), fleet, NOW, actor="ada")
    yield None, None, transition
    state = transition.state
    for what, later in history:
        event = Event(number=state.events + 1, unix_seconds=NOW + later, actor="ada", what=what)
        try:
            transition = step(state, event)
        except (RolloutRefused, BadRequest):
            continue
        yield state, event, transition
        state = transition.state


@given(FLEETS, HISTORIES)
def test_no_cluster_is_told_a_version_that_nobody_decided(fleet: dict[str, FleetCluster], history: list) -> None:  # type: ignore[type-arg]
    reported: dict[str, object] = {}
    decided = {name: {found.acting} for name, found in fleet.items()}
    for before, event, transition in _lived(fleet, history):
        if event is not None and isinstance(event.what, Joined) and before.member(event.what.cluster) is None:
            decided[event.what.cluster] = {event.what.incumbent}
            reported.pop(event.what.cluster, None)
        if event is not None and isinstance(event.what, VersionGone):
            for versions in decided.values():
                versions.add(event.what.instead)
        lines = {line.subject for line in transition.audit if line.action == "rollout-assigned"}
        assert {command.cluster for command in transition.commands} == lines
        for command in transition.commands:
            reported[command.cluster] = command
            own = transition.state.member(command.cluster)
            assert own is not None
            assert command.acting in {CANDIDATE, *decided[command.cluster]}
            if command.acting == CANDIDATE and own.incumbent != CANDIDATE:
                assert own.role is VersionRole.CANDIDATE
            assert command.challenger in {None, CANDIDATE}
        for member in transition.state.members:  # what was told last is what stands in the state
            if member.cluster in reported:
                assert reported[member.cluster] == assignment_of(member, CANDIDATE)


@given(FLEETS, HISTORIES)
def test_an_event_makes_one_transition_at_most(fleet: dict[str, FleetCluster], history: list) -> None:  # type: ignore[type-arg]
    for before, event, transition in _lived(fleet, history):
        if before is None:
            continue
        assert transition.state.events == event.number
        assert transition.state.stage - before.stage in (0, 1)
        assert len({command.cluster for command in transition.commands}) == len(transition.commands)
        if before.phase.over:
            assert transition.state.phase is before.phase
            assert transition.commands == ()
        if before.phase is RolloutPhase.ROLLING_BACK:
            assert transition.state.phase in (RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK)
        assert transition.state.latest_unix_seconds >= before.latest_unix_seconds


@given(FLEETS, HISTORIES)
def test_after_a_rollback_nobody_has_the_candidate(fleet: dict[str, FleetCluster], history: list) -> None:  # type: ignore[type-arg]
    for _, _, transition in _lived(fleet, history):
        state = transition.state
        if state.phase in (RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK):
            for member in state.members:
                assert member.role in (VersionRole.INCUMBENT, VersionRole.PINNED, VersionRole.HELD)
                assert assignment_of(member, CANDIDATE).challenger is None


@given(FLEETS, HISTORIES, st.integers(0, 30))
def test_whoever_takes_the_events_again_comes_to_the_same_state(
    fleet: dict[str, FleetCluster],
    history: list,  # type: ignore[type-arg]
    crash: int,
) -> None:
    transitions = list(_lived(fleet, history))
    stored = [event.model_dump_json() for _, event, _ in transitions if event is not None]
    end = transitions[-1][2].state
    at = min(crash, len(transitions) - 1)
    # A state that was stored earlier, and all events from the first on: those taken before change nothing.
    state = RolloutState.model_validate_json(transitions[at][2].state.model_dump_json())
    for text in stored:
        event = Event.model_validate_json(text)
        transition = step(state, event)
        if event.number <= transitions[at][2].state.events:
            assert (transition.state, transition.commands, transition.audit) == (state, (), ())
        state = transition.state
    assert state == end


def test_an_event_of_another_program_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        Event.model_validate_json('{"number": 1, "unix_seconds": 0, "what": {"kind": "celebrate"}}')
