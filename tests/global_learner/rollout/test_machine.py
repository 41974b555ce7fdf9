import pytest
from rollout_makers import CANDIDATE, NOW, at_stage, fleet_of, gone_back, passed, started, take, with_role

from global_learner.errors import BadRequest, RolloutRefused
from global_learner.rollout.machine import FleetCluster, start, step
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.state import (
    Abort,
    Assign,
    Away,
    Event,
    EventContent,
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

DAY = 86_400.0


def may_act(state: RolloutState, cluster: str) -> frozenset[int]:
    """The versions that somebody decided a cluster may act on; none of a cluster that is left alone."""
    member = state.member(cluster)
    if member is None or member.role is VersionRole.PINNED:
        return frozenset()
    both = {member.incumbent, state.candidate}
    allowed = {VersionRole.ALTERNATING: both, VersionRole.CANDIDATE: {state.candidate}}.get(
        member.role, {member.incumbent}
    )
    return frozenset(allowed)


def _fail(state: RolloutState) -> StageVerdict:
    return StageVerdict(stage=state.stage, outcome=StageOutcome.FAIL, reason="the mean loss is above 0")


def test_a_rollout_comes_to_the_whole_fleet_in_stages() -> None:
    state = started()
    assert with_role(state, VersionRole.INCUMBENT) == set(fleet_of())
    assert state.current_stage.kind == "gate"
    state = passed(state)
    assert with_role(state, VersionRole.SHADOW) == set(fleet_of())
    state = passed(state)
    canaries = with_role(state, VersionRole.ALTERNATING)
    assert len(canaries) == 2
    assert len(with_role(state, VersionRole.INCUMBENT)) == 6
    state = passed(state)
    assert state.current_stage.kind == "wave"
    assert with_role(state, VersionRole.CANDIDATE) == canaries
    assert len(with_role(state, VersionRole.ALTERNATING)) == 2
    state = passed(state)
    assert len(with_role(state, VersionRole.CANDIDATE)) == 4
    assert len(with_role(state, VersionRole.ALTERNATING)) == 4
    state = passed(state)
    assert state.phase is RolloutPhase.DONE
    assert with_role(state, VersionRole.CANDIDATE) == set(fleet_of())


def test_every_stage_tells_exactly_those_whose_part_changes_and_says_so() -> None:
    transition = take(at_stage("shadow"), StageVerdict(stage=1, outcome=StageOutcome.PASS, reason="agrees"))
    reported = {command.cluster: command for command in transition.commands}
    assert set(reported) == set(fleet_of())
    canary = next(iter(sorted(with_role(transition.state, VersionRole.ALTERNATING))))
    assert reported[canary] == Assign(canary, VersionRole.ALTERNATING, 7, CANDIDATE)
    lines = [(line.action, line.subject, line.detail) for line in transition.audit]
    assert ("rollout-stage", "rollout 1", "canary") in lines
    assert ("rollout-assigned", canary, "v7 beside v12 (shadow) to v7 beside v12 (alternating)") in lines
    assert sum(action == "rollout-assigned" for action, _, _ in lines) == len(reported)


def test_canaries_that_are_named_are_the_canaries() -> None:
    plan = RolloutPlan.model_validate({"stages": [{"kind": "canary", "clusters": ["cluster-3"]}, {"kind": "fleet"}]})
    assert with_role(started(plan), VersionRole.ALTERNATING) == {"cluster-3"}


def test_canaries_are_drawn_among_those_that_are_there() -> None:
    fleet = {name: FleetCluster(7, away=name not in ("cluster-1", "cluster-6")) for name in fleet_of()}
    assert with_role(at_stage("canary", fleet=fleet), VersionRole.ALTERNATING) == {"cluster-1", "cluster-6"}


@pytest.mark.parametrize("kind", ["gate", "shadow", "canary", "wave", "fleet"])
def test_a_fail_takes_every_cluster_back_to_what_it_had(kind: str) -> None:
    fleet = {name: FleetCluster(number + 1) for number, name in enumerate(fleet_of())}
    state = at_stage(kind, fleet=fleet)
    for name in sorted(fleet):
        acting = CANDIDATE if CANDIDATE in may_act(state, name) else fleet[name].acting
        state = take(state, VersionSeen(cluster=name, acting=acting)).state
    transition = take(state, _fail(state))
    back = transition.state
    assert with_role(back, VersionRole.INCUMBENT) == set(fleet)
    assert all(may_act(back, name) == {fleet[name].acting} for name in fleet)
    assert all(command.challenger is None and command.acting != CANDIDATE for command in transition.commands)
    for name in sorted(fleet):
        assert back.phase is RolloutPhase.ROLLED_BACK or CANDIDATE in {member.acting for member in back.members}
        back = take(back, VersionSeen(cluster=name, acting=fleet[name].acting)).state
    assert back.phase is RolloutPhase.ROLLED_BACK
    assert back.reason.startswith(f"failed in stage {kind}")


def test_a_rollback_does_not_wait_for_a_cluster_that_is_away() -> None:
    state = at_stage("canary")
    first, second = sorted(with_role(state, VersionRole.ALTERNATING))
    for name in (first, second):
        state = take(state, VersionSeen(cluster=name, acting=CANDIDATE)).state
    state = take(state, _fail(state)).state
    state = take(state, VersionSeen(cluster=first, acting=7)).state
    assert state.phase is RolloutPhase.ROLLING_BACK
    state = take(state, Away(cluster=second)).state
    assert state.phase is RolloutPhase.ROLLED_BACK
    assert may_act(state, second) == {7}


def test_a_pause_holds_stages_up_and_never_a_rollback() -> None:
    state = take(at_stage("canary"), Pause()).state
    assert passed(state).stage == state.stage
    with pytest.raises(RolloutRefused, match="is paused: promote does not apply"):
        take(state, Promote())
    assert take(state, _fail(state)).state.phase is RolloutPhase.ROLLING_BACK
    resumed = take(state, Resume()).state
    assert passed(resumed).current_stage.kind == "wave"


def test_without_a_verdict_in_time_an_operator_is_asked() -> None:
    state = at_stage("canary")
    state = take(state, StageVerdict(stage=state.stage, outcome=StageOutcome.INCONCLUSIVE, reason="few pairs")).state
    assert state.phase is RolloutPhase.ASKING
    assert len(with_role(state, VersionRole.ALTERNATING)) == 2
    assert take(state, Promote()).state.current_stage.kind == "wave"
    assert take(state, Abort()).state.phase is RolloutPhase.ROLLING_BACK
    assert passed(state).current_stage.kind == "wave"


def test_a_canary_that_nobody_can_contradict_steps_back_while_an_operator_is_asked() -> None:
    state = at_stage("canary")
    suffers, other = sorted(with_role(state, VersionRole.ALTERNATING))
    verdict = StageVerdict(stage=state.stage, outcome=StageOutcome.INCONCLUSIVE, held=(suffers,), reason="worse off")
    state = take(state, verdict).state
    assert state.phase is RolloutPhase.ASKING
    assert may_act(state, suffers) == may_act(state, other) == {7}
    promoted = take(state, Promote()).state
    assert promoted.current_stage.kind == "wave"
    assert may_act(promoted, suffers) == {7}


def test_a_late_verdict_is_not_on_the_next_stage() -> None:
    state = at_stage("canary")
    assert (
        take(state, StageVerdict(stage=state.stage - 1, outcome=StageOutcome.FAIL)).state.phase is RolloutPhase.RUNNING
    )


def test_a_cluster_that_is_worse_off_is_held_to_the_end() -> None:
    state = at_stage("wave")
    held = sorted(with_role(state, VersionRole.ALTERNATING))[0]
    verdict = StageVerdict(stage=state.stage, outcome=StageOutcome.WAIT, held=(held,))
    transition = take(state, verdict)
    assert transition.commands == (Assign(held, VersionRole.HELD, 7),)
    state = passed(passed(transition.state))
    assert state.phase is RolloutPhase.DONE
    assert with_role(state, VersionRole.HELD) == {held}
    assert with_role(state, VersionRole.CANDIDATE) == set(fleet_of()) - {held}


def test_pinned_clusters_are_never_told_anything() -> None:
    fleet = {**fleet_of(), "cluster-2": FleetCluster(3, pinned=True)}
    state = start(1, CANDIDATE, RolloutPlan(pinned=("cluster-5",)), fleet, NOW, actor="ada").state
    reported: set[str] = set()
    while state.phase is RolloutPhase.RUNNING:
        transition = take(state, StageVerdict(stage=state.stage, outcome=StageOutcome.PASS))
        reported |= {command.cluster for command in transition.commands}
        state = transition.state
    assert reported == set(fleet) - {"cluster-2", "cluster-5"}
    assert may_act(state, "cluster-2") == frozenset()


def test_a_cluster_that_is_pinned_meanwhile_goes_back_and_stays() -> None:
    state = at_stage("canary")
    name = sorted(with_role(state, VersionRole.ALTERNATING))[0]
    transition = take(state, Pin(cluster=name))
    assert transition.commands == (Assign(name, VersionRole.PINNED, 7),)
    assert with_role(passed(passed(transition.state)), VersionRole.PINNED) == {name}
    with pytest.raises(BadRequest, match="knows no cluster 'nobody'"):
        take(state, Pin(cluster="nobody"))


def test_no_stage_begins_in_a_freeze_and_a_rollback_does() -> None:
    plan = RolloutPlan.model_validate(
        {"freeze": [{"kind": "dates", "begin": "2027-01-20T00:00:00Z", "end": "2027-01-22T00:00:00Z"}]}
    )  # NOW is 2027-01-15
    state = at_stage("canary", plan)
    frozen = NOW + 6 * DAY
    verdict = StageVerdict(stage=state.stage, outcome=StageOutcome.PASS)
    assert take(state, verdict, at=frozen).state.current_stage.kind == "canary"
    with pytest.raises(RolloutRefused, match="no stage begin before 2027-01-22 00:00 UTC"):
        take(state, Promote(), at=frozen)
    assert take(state, _fail(state), at=frozen).state.phase is RolloutPhase.ROLLING_BACK
    later = take(take(state, verdict, at=frozen).state, verdict, at=NOW + 8 * DAY)
    assert later.state.current_stage.kind == "wave"
    with pytest.raises(RolloutRefused, match="start the rollout then"):
        start(2, CANDIDATE, plan, fleet_of(), frozen, actor="ada")


def test_a_rollout_while_one_runs_is_refused_and_told_which() -> None:
    state = at_stage("canary")
    with pytest.raises(RolloutRefused, match=r"rollout 1 of v12 is running \(stage canary\): wait for its end, or"):
        start(2, 13, RolloutPlan(), fleet_of(), NOW, actor="ada", running=state)
    over = gone_back(take(state, Abort()).state)
    assert over.phase is RolloutPhase.ROLLED_BACK
    assert start(2, 13, RolloutPlan(), fleet_of(), NOW, actor="ada", running=over).state.number == 2


def test_who_may_act_on_the_candidate_is_taken_to_do_so_until_it_says_otherwise() -> None:
    state = take(at_stage("canary"), Abort()).state
    assert state.phase is RolloutPhase.ROLLING_BACK
    assert {member.cluster for member in state.members if member.acting == CANDIDATE} == {
        member.cluster for member in at_stage("canary").members if member.role is VersionRole.ALTERNATING
    }
    assert gone_back(state).phase is RolloutPhase.ROLLED_BACK


def test_a_cluster_that_is_pinned_amid_a_rollback_holds_it_up_no_longer() -> None:
    state = take(at_stage("canary"), Abort()).state
    for member in state.members:
        state = take(state, Pin(cluster=member.cluster)).state if member.acting == CANDIDATE else state
    assert state.phase is RolloutPhase.ROLLED_BACK


def test_a_rollout_that_would_reach_nobody_is_refused() -> None:
    for fleet in ({}, fleet_of(3, acting=CANDIDATE), {"a": FleetCluster(7, pinned=True)}):
        with pytest.raises(RolloutRefused, match="no cluster would come to v12"):
            start(1, CANDIDATE, RolloutPlan(), fleet, NOW, actor="ada")


def test_a_candidate_that_is_deleted_is_rolled_back() -> None:
    transition = take(at_stage("wave"), VersionGone(version=CANDIDATE, instead=1))
    assert transition.state.reason == "v12 is gone"
    assert with_role(transition.state, VersionRole.INCUMBENT) == set(fleet_of())


def test_an_incumbent_that_is_deleted_pauses_and_names_what_is_in_its_place() -> None:
    fleet = {**fleet_of(), "cluster-2": FleetCluster(5)}
    transition = take(at_stage("wave", fleet=fleet), VersionGone(version=5, instead=1))
    state = transition.state
    assert state.phase is RolloutPhase.PAUSED
    assert "v5 is gone: cluster-2 would go back to v1" in state.reason
    back = take(state, Abort()).state
    assert may_act(back, "cluster-2") == {1}
    assert may_act(back, "cluster-3") == {7}
    assert take(state, VersionGone(version=99, instead=1)).state.phase is RolloutPhase.PAUSED


def test_a_file_that_can_be_put_back_pauses_and_moves_nobody() -> None:
    before = at_stage("wave")
    transition = take(before, VersionDamaged(version=CANDIDATE))
    assert transition.state.phase is RolloutPhase.PAUSED
    assert "policyctl version restore v12 --from FILE" in transition.state.reason
    assert not transition.commands
    assert take(transition.state, VersionDamaged(version=CANDIDATE)).state.phase is RolloutPhase.PAUSED
    assert take(transition.state, Resume()).state.members == before.members


def test_a_candidate_that_a_cluster_had_already_is_no_place_to_go_back_to_once_it_is_gone() -> None:
    fleet = {**fleet_of(), "cluster-2": FleetCluster(CANDIDATE)}
    state = take(at_stage("wave", fleet=fleet), VersionGone(version=CANDIDATE, instead=1)).state
    assert may_act(state, "cluster-2") == {1}


def test_clusters_that_come_and_go_meanwhile() -> None:
    state = take(at_stage("canary"), Joined(cluster="new", incumbent=9)).state
    assert may_act(state, "new") == {9}
    assert may_act(take(state, Joined(cluster="new", incumbent=4)).state, "new") == {9}
    gone = sorted(with_role(state, VersionRole.ALTERNATING))[0]
    state = take(state, Left(cluster=gone)).state
    assert state.member(gone) is None
    state = passed(passed(passed(state)))
    assert state.phase is RolloutPhase.DONE
    assert may_act(state, "new") == {CANDIDATE}


def test_clocks_that_go_back_a_day_change_nothing() -> None:
    state = take(at_stage("canary"), VersionSeen(cluster="cluster-0", acting=7), at=NOW + DAY).state
    later = take(state, StageVerdict(stage=state.stage, outcome=StageOutcome.PASS), at=NOW - DAY).state
    assert later.stage_unix_seconds == NOW + DAY


@pytest.mark.parametrize("what", [Promote(), Pause(), Resume(), Abort(), Pin(cluster="cluster-0")])
def test_what_is_over_takes_no_more_orders(what: EventContent) -> None:
    over = take(started(), Abort()).state
    with pytest.raises(RolloutRefused, match=f"rollout 1 of v12 is rolled-back: {what.kind} does not apply"):
        take(over, what)
    assert take(over, VersionSeen(cluster="cluster-0", acting=7)).commands == ()


def test_an_event_that_is_missing_is_noticed() -> None:
    with pytest.raises(ValueError, match="event 2 follows 0: one is missing"):
        step(started(), Event(number=2, unix_seconds=NOW, what=Pause()))
