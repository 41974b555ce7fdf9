import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_makers import CANDIDATE, at_stage, fleet_of, started, take, with_role

from global_learner.rollout.state import (
    MOST_EVENTS,
    Abort,
    Away,
    Heard,
    Joined,
    Left,
    Pin,
    RolloutState,
    VersionRole,
    VersionSeen,
    observed,
)

QUIET = {name: Heard(7, acting=7) for name in fleet_of()}


def test_where_nothing_changed_there_is_nothing_to_tell() -> None:
    assert observed(started(), QUIET, (), 60.0) == []
    silent = {name: dataclasses.replace(heard, acting=None) for name, heard in QUIET.items()}
    assert observed(started(), silent, (), 60.0) == []


def test_who_joins_leaves_is_away_or_held() -> None:
    fleet = {
        **QUIET,
        "cluster-0": Heard(7, silent_seconds=61.0, acting=7),
        "new": Heard(1, acting=1),
        "new-held": Heard(3, held=True),
    }
    assert observed(started(), fleet, ("cluster-1", "stranger"), 60.0) == [
        Away(cluster="cluster-0"),
        Left(cluster="cluster-1"),
        Joined(cluster="new", incumbent=1),
        Joined(cluster="new-held", incumbent=3),
        Pin(cluster="new-held"),
    ]


def test_one_that_alternates_acts_on_the_candidate_whatever_block_it_is_in() -> None:
    state = at_stage("canary")
    name = sorted(with_role(state, VersionRole.ALTERNATING))[0]
    for acting in (7, CANDIDATE):
        heard = Heard(7, acting=acting, rollout=state.number, role="alternating")
        assert observed(state, {name: heard}, (), 60.0) == [VersionSeen(cluster=name, acting=CANDIDATE)]
    state = take(state, VersionSeen(cluster=name, acting=CANDIDATE)).state
    assert observed(state, {name: heard}, (), 60.0) == []
    back = take(state, Abort()).state
    assert observed(back, {name: heard}, (), 60.0) == []
    assert observed(back, {name: Heard(7, acting=7)}, (), 60.0) == [VersionSeen(cluster=name, acting=7)]
    assert observed(back, {name: Heard(7, acting=0)}, (), 60.0) == [VersionSeen(cluster=name, acting=7)]
    assert observed(back, {name: Heard(7, acting=7, rollout=9, role="alternating")}, (), 60.0) != []


@pytest.mark.heavy
def test_a_flood_is_told_bit_by_bit() -> None:
    many = {f"new-{number}": Heard(1) for number in range(3 * MOST_EVENTS)}
    state, rounds = started(), 0
    while contents := observed(state, many, (), 60.0):
        assert len(contents) <= MOST_EVENTS + 2
        for content in contents:
            state = take(state, content).state
        rounds += 1
    assert rounds == 3
    assert len(state.members) == len(many) + 8


@given(
    st.dictionaries(
        st.sampled_from([*fleet_of(4), "new", "other"]),
        st.builds(
            Heard,
            st.sampled_from([1, 7]),
            st.booleans(),
            st.sampled_from([0.0, 100.0]),
            st.sampled_from([None, 0, 7, CANDIDATE]),
            st.sampled_from([0, 1]),
            st.sampled_from(["", "shadow", "alternating"]),
        ),
    ),
    st.sampled_from(["gate", "shadow", "canary", "fleet"]),
    st.sets(st.sampled_from([*fleet_of(4), "new"])),
)
def test_what_was_told_once_is_not_told_again(fleet: dict[str, Heard], stage: str, gone: set[str]) -> None:
    def reported(state: RolloutState) -> RolloutState:
        for _ in range(2):  # who joins is seen a look later
            for content in observed(state, fleet, gone, 60.0):
                state = take(state, content).state
        return state

    state = reported(at_stage(stage, fleet=fleet_of(4)))
    assert observed(state, fleet, gone, 60.0) == []
    state = reported(take(state, Abort()).state)
    assert observed(state, fleet, gone, 60.0) == []
