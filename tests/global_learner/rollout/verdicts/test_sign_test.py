import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.rollout.verdicts.evidence import Pair, SwitchbackBlock
from global_learner.rollout.verdicts.verdict import (
    NO_SIGNS,
    Signs,
    guard_signs,
    latency_signs,
    log_evidence,
    starvation_signs,
    without_any,
)


def test_the_fortune_begins_at_one_and_grows_with_what_is_worse() -> None:
    assert log_evidence(NO_SIGNS) == pytest.approx(0.0)
    # One throw: the mean of 2·p over Beta(½, ½) above ½ is 1 + 2/π.
    assert math.exp(log_evidence(Signs(1, 0))) == pytest.approx(1.0 + 2.0 / math.pi)
    assert log_evidence(Signs(8, 0)) > math.log(100.0)
    assert log_evidence(Signs(0, 50)) < 0.0


@given(st.integers(0, 200), st.integers(0, 200))
def test_the_fortune_is_a_fair_game(more: int, less: int) -> None:
    """The mean of what the next throw of a fair coin makes of it is what it is: so Ville's bound holds."""
    now = log_evidence(Signs(more, less))
    after = [log_evidence(Signs(more + 1, less)), log_evidence(Signs(more, less + 1))]
    assert np.logaddexp(*after) - math.log(2.0) == pytest.approx(now, abs=1e-6)


def test_a_fair_coin_that_is_looked_at_after_each_throw_is_hardly_ever_called_unfair() -> None:
    wrong = 0
    for run in range(400):
        heads = np.random.default_rng(run).random(200) < 0.5
        more = np.cumsum(heads)
        wrong += any(log_evidence(Signs(int(up), n + 1 - int(up))) >= math.log(20.0) for n, up in enumerate(more))
    assert wrong / 400 <= 0.05


def test_no_cluster_alone_makes_the_evidence() -> None:
    assert without_any({"north": Signs(100, 0)}) == -math.inf
    assert without_any({"north": Signs(100, 0), "south": Signs(1, 1)}) < math.log(2.0)
    assert without_any({name: Signs(8, 1) for name in ("a", "b", "c")}) > math.log(100.0)


def test_one_that_says_the_opposite_again_and_again_keeps_no_evidence_from_the_others() -> None:
    four = {name: Signs(8, 1) for name in ("a", "b", "c", "d")}
    assert without_any({**four, "liar": Signs(0, 2000)}) > math.log(100.0)
    assert without_any({**dict.fromkeys(four, Signs(1, 1)), "liar": Signs(2000, 0)}) < math.log(2.0)


def _pair(incumbent: SwitchbackBlock, candidate: SwitchbackBlock) -> Pair:
    return Pair(incumbent, candidate)


def test_what_counts_is_more_than_the_tolerance() -> None:
    calm = SwitchbackBlock(0, False, 1.0, 1.0, guard_share=0.01, starved_jobs=1, latency_p99_seconds=0.2)
    pairs = [
        _pair(calm, SwitchbackBlock(1, True, 1.0, 1.0, guard_share=0.02, starved_jobs=2, latency_p99_seconds=0.5)),
        _pair(calm, SwitchbackBlock(1, True, 1.0, 1.0, guard_share=0.012, starved_jobs=1, latency_p99_seconds=0.25)),
        _pair(calm, SwitchbackBlock(1, True, 1.0, 1.0, guard_share=0.0, starved_jobs=0, latency_p99_seconds=0.01)),
    ]
    assert guard_signs(pairs, 0.005) == Signs(1, 1)
    assert starvation_signs(pairs) == Signs(1, 1)
    assert latency_signs(pairs, 0.1) == Signs(1, 1)
