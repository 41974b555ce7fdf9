"""Power of a stage: what is drawn from its scores says what the rule would do, and no more."""

import numpy as np
import pytest

from global_learner.rollout.verdicts.evidence import Score
from global_learner.rollout.verdicts.power import LEAST_SCORES, least_stopped, power_at
from global_learner.rollout.verdicts.verdict import Rule

NARROW, WIDE = Rule(margin=0.1), Rule(margin=1.0, false_pass=0.25)


def scores(deviation: float, mean: float = 0.0, pairs: int = 8, twin: bool = True) -> dict[str, list[Score]]:
    random = np.random.default_rng(4)
    return {
        cluster: [Score(mean + deviation * float(noise), mean if twin else None) for noise in random.normal(size=pairs)]
        for cluster in ("north", "south")
    }


def test_blocks_that_vary_little_stop_what_is_worse_and_pass_what_is_equal() -> None:
    worse, equal = (power_at(scores(0.03), NARROW, loss, 30, draws=40) for loss in (0.1, 0.0))
    assert worse is not None
    assert equal is not None
    assert worse.stops == 1.0
    assert worse.fails > 0.9, "most by a verdict, and not only as none came"
    assert equal.stops < 0.1


def test_what_the_version_of_the_blocks_was_itself_worth_does_not_matter() -> None:
    found = {power_at(scores(0.03, mean), NARROW, 0.1, 30, draws=20) for mean in (0.0, -0.25, 0.25)}
    assert len({power and round(power.stops, 6) for power in found}) == 1


def test_a_margin_of_twice_the_jobs_lets_a_worse_version_pass_and_says_so() -> None:
    found = power_at(scores(0.25, twin=False), WIDE, 0.1, 30, draws=40)
    assert found is not None
    assert found.stops < 0.5
    least = least_stopped(scores(0.25, twin=False), WIDE, 30, draws=20)
    assert least is not None
    assert least.loss > 0.1, "and what it does stop is far worse"
    assert least.stops >= 0.8


def test_without_a_verdict_an_operator_is_asked_and_it_goes_no_further() -> None:
    found = power_at(scores(1.0, twin=False), NARROW, 0.1, 8, draws=40)
    assert found is not None
    assert found.asks > 0.5
    assert found.stops == pytest.approx(found.fails + found.asks)


def test_too_few_scores_say_nothing() -> None:
    assert power_at({}, NARROW, 0.1, 30) is None
    assert power_at(scores(0.1, pairs=LEAST_SCORES - 1), NARROW, 0.1, 30) is None
    assert least_stopped(scores(0.1, pairs=LEAST_SCORES - 1), NARROW, 30) is None
