import pytest
from rollout_makers import CANDIDATE, NOW, at_stage, started, take, with_role

from global_learner.rollout.evidence_store import Brought
from global_learner.rollout.judging import Judge, reported
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.state import Pause, Pin, RolloutPhase, StageVerdict, VersionRole
from global_learner.rollout.verdicts.evidence import Shadowed, SwitchbackBlock
from global_learner.rollout.verdicts.gate import GateReplayed, OwnWork, Replayed
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict

DAY = 86_400.0
NOTHING = Brought()


def blocks(loss: float, pairs: int) -> list[SwitchbackBlock]:
    """Pairs in which the candidate has so much more."""
    return [
        SwitchbackBlock(number, number % 2 == 0, 5.0 * (1.0 + loss * (number % 2 == 0)) + 0.01 * (number % 3), 5.0)
        for number in range(2 * pairs)
    ]


def test_the_gate_waits_for_replays_asks_without_them_and_judges_them() -> None:
    state, judge = started(), Judge()
    assert judge.judge(state, NOTHING, None, {}, NOW).outcome is StageOutcome.WAIT
    asked = judge.judge(state, NOTHING, "scores are off", {}, NOW)
    assert (asked.outcome, asked.reasons) == (StageOutcome.INCONCLUSIVE, ("scores are off",))
    for slower, outcome in ((1.0, StageOutcome.PASS), (2.0, StageOutcome.FAIL)):
        fixed = {f"replay {number}": [Replayed(slower, 1.0, 1.5)] for number in range(4)}
        own = OwnWork({f"cluster-{number}": Replayed(slower, 1.0, 1.5) for number in range(3)})
        for replays in (GateReplayed(fixed, OwnWork()), GateReplayed(fixed, own)):
            assert judge.judge(state, NOTHING, replays, {}, NOW).outcome is outcome


def test_shadowing_ends_with_its_hours_by_the_learners_clock_that_never_goes_back() -> None:
    state = at_stage("shadow")
    brought = Brought({}, {name: Shadowed(100, agreed=100) for name in with_role(state, VersionRole.SHADOW)})
    judge = Judge()
    assert judge.judge(state, brought, None, {}, NOW + 0.9 * DAY).outcome is StageOutcome.WAIT
    assert judge.judge(state, brought, None, {}, NOW - 9 * DAY).outcome is StageOutcome.WAIT
    assert judge.judge(state, brought, None, {}, NOW + DAY).outcome is StageOutcome.PASS


def test_canaries_are_judged_by_their_blocks_and_only_they_are_waited_for() -> None:
    state = at_stage("canary")
    canaries = with_role(state, VersionRole.ALTERNATING)
    judge = Judge()
    assert judge.judge(state, NOTHING, None, {}, NOW).outcome is StageOutcome.WAIT
    assert judge.judge(state, NOTHING, None, {}, NOW + 15 * DAY).outcome is StageOutcome.INCONCLUSIVE
    for loss, outcome in ((-0.3, StageOutcome.PASS), (0.9, StageOutcome.FAIL)):
        brought = Brought({name: blocks(loss, 60) for name in canaries})
        assert Judge().judge(state, brought, None, {}, NOW).outcome is outcome
    pinned = take(state, Pin(cluster=sorted(canaries)[0])).state
    # Whom nobody is left to contradict: if it suffers, an operator is asked at once.
    assert judge.judge(pinned, brought, None, {}, NOW).outcome is StageOutcome.INCONCLUSIVE
    thrives = Brought({name: blocks(-0.3, 60) for name in canaries})
    assert Judge().judge(pinned, thrives, None, {}, NOW).outcome is StageOutcome.WAIT


def test_what_would_change_nothing_is_not_told() -> None:
    state = at_stage("canary")
    paused = take(state, Pause()).state
    asking = take(state, StageVerdict(stage=state.stage, outcome=StageOutcome.INCONCLUSIVE)).state
    frozen = at_stage("canary", RolloutPlan.model_validate(
        {"freeze": [{"kind": "dates", "begin": "2027-01-20T00:00:00Z", "end": "2027-01-22T00:00:00Z"}]}))  # fmt: skip
    assert asking.phase is RolloutPhase.ASKING
    for of, outcome, now, is_reported in [
        (state, StageOutcome.PASS, NOW, True),
        (asking, StageOutcome.PASS, NOW, True),
        (paused, StageOutcome.PASS, NOW, False),
        (frozen, StageOutcome.PASS, NOW + 6 * DAY, False),
        (frozen, StageOutcome.FAIL, NOW + 6 * DAY, True),
        (paused, StageOutcome.FAIL, NOW, True),
        (state, StageOutcome.INCONCLUSIVE, NOW, True),
        (asking, StageOutcome.INCONCLUSIVE, NOW, False),
        (state, StageOutcome.WAIT, NOW, False),
    ]:
        assert (reported(of, Verdict(outcome), now) is not None) is is_reported


@pytest.mark.parametrize("outcome", list(StageOutcome))
def test_whatever_is_told_changes_the_state(outcome: StageOutcome) -> None:
    state = at_stage("canary")
    held = sorted(with_role(state, VersionRole.ALTERNATING))[:1]
    for _ in range(3):
        event = reported(state, Verdict(outcome, held=tuple(held)), NOW)
        if event is None:
            return
        after = take(state, event).state
        assert after.model_copy(update={"events": state.events}) != state
        state = after
    assert outcome in (StageOutcome.PASS, StageOutcome.FAIL), f"told again and again of v{CANDIDATE}"
