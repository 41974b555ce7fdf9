"""What clusters told of their own work cannot be turned by one of them, and never makes a gate pass by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.rollout.verdicts.gate import OwnWork, Replayed, judge_gate, judge_own_work
from global_learner.rollout.verdicts.verdict import StageOutcome

RUNS = st.builds(Replayed, st.floats(1.0, 1e6), st.floats(1.0, 1e6), st.floats(1.0, 1e6))
CLOSE = st.builds(Replayed, st.floats(95.0, 112.0), st.just(100.0), st.just(120.0))
MARGIN = 0.03


def fixed(ratio: float) -> dict[str, list[Replayed]]:
    return {f"replay {number}": [Replayed(ratio * 100.0, 100.0, 150.0)] for number in range(4)}


def own(*ratios: float) -> dict[str, Replayed]:
    return {f"cluster-{number}": Replayed(ratio * 100.0, 100.0, 150.0) for number, ratio in enumerate(ratios)}


@given(st.lists(CLOSE | RUNS, min_size=3, max_size=12), RUNS, st.integers(0, 11))
def test_no_cluster_turns_a_pass_into_a_fail_or_a_fail_into_a_pass(
    runs: list[Replayed], lie: Replayed, place: int
) -> None:
    reported = {str(number): run for number, run in enumerate(runs)}
    honest = judge_own_work(reported, MARGIN).outcome
    lied = judge_own_work({**reported, str(place % len(runs)): lie}, MARGIN).outcome
    assert StageOutcome.INCONCLUSIVE in (honest, lied) or honest is lied


@given(st.lists(CLOSE | RUNS, max_size=6))
def test_own_work_never_lets_pass_what_the_fixed_set_does_not(runs: list[Replayed]) -> None:
    work = OwnWork({str(number): run for number, run in enumerate(runs)})
    assert judge_gate(fixed(1.5), work, MARGIN).outcome is StageOutcome.FAIL


@pytest.mark.parametrize(
    ("ratios", "outcome", "said"),
    [
        ((1.0, 1.0, 1.0), StageOutcome.PASS, "+0.0% whichever is left out"),
        ((1.5, 1.4, 1.6), StageOutcome.FAIL, "whichever is left out"),
        ((1.0, 1.0, 50.0), StageOutcome.INCONCLUSIVE, "it hangs on one, maybe cluster-2"),
        ((1.2, 1.2, 0.01), StageOutcome.INCONCLUSIVE, "it hangs on one, maybe cluster-2"),
        ((1.5, 1.5), StageOutcome.PASS, "not used: 2 of 2 sketches can be, and 3 are needed"),
    ],
)
def test_the_verdict_on_both(ratios: tuple[float, ...], outcome: StageOutcome, said: str) -> None:
    verdict = judge_gate(fixed(1.0), OwnWork(own(*ratios)), MARGIN)
    assert verdict.outcome is outcome
    assert said in verdict.reasons[-1]


def test_a_sketch_that_was_dropped_is_told_and_no_sketches_change_nothing() -> None:
    dropped = {"south": "it took longer than 120 s"}
    verdict = judge_gate(fixed(1.0), OwnWork(own(1.0, 1.0, 1.0), dropped), MARGIN)
    assert verdict.outcome is StageOutcome.PASS
    assert "south's own work is left out: it took longer than 120 s" in verdict.reasons
    assert len(judge_gate(fixed(1.0), OwnWork(), MARGIN).reasons) == 1
