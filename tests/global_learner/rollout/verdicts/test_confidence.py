"""Coverage is measured with fixed seeds: how often an interval is wrong at any look, not only at the last."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.rollout.verdicts.confidence import (
    LEAST_PAIRS,
    UNKNOWN,
    boundaries,
    interval_of,
    likeness,
    summed,
)
from global_learner.rollout.verdicts.evidence import Score

ALPHA = 0.05


def _ever_wrong(draw, runs: int = 200, clusters: int = 4, pairs: int = 60) -> float:  # type: ignore[no-untyped-def]
    """The share of runs in which the lower bound is above the mean of nought at one look at least."""
    wrong = 0
    for run in range(runs):
        generator = np.random.default_rng((7, run))
        scores = {str(name): [Score(float(value)) for value in draw(generator, pairs)] for name in range(clusters)}
        wrong += any(
            interval_of({name: summed(own[:seen]) for name, own in scores.items()}, ALPHA).lower > 0.0
            for seen in range(1, pairs + 1, 5)
        )
    return wrong / runs


def test_looking_again_and_again_is_wrong_no_more_often_than_it_says() -> None:
    assert _ever_wrong(lambda generator, count: generator.normal(0.0, 0.2, count)) <= ALPHA


def test_heavy_tails_are_endured() -> None:
    assert _ever_wrong(lambda generator, count: 0.1 * generator.standard_t(2, count)) <= ALPHA


def test_neighbours_that_are_alike_are_endured() -> None:
    def draw(generator: np.random.Generator, count: int) -> np.ndarray:
        values = np.empty(count)
        value = generator.normal(0.0, 0.2)
        for number in range(count):
            value = 0.3 * value + generator.normal(0.0, 0.2)
            values[number] = value
        return values

    assert _ever_wrong(draw, clusters=8) <= ALPHA


def test_a_plain_interval_that_is_looked_at_as_often_is_wrong_far_more_often() -> None:
    wrong = 0
    for run in range(300):
        values = np.random.default_rng((7, run)).normal(0.0, 0.2, (60, 4))
        wrong += any(
            values[:seen].mean() > 1.645 * values[:seen].std(ddof=1) / math.sqrt(values[:seen].size)
            for seen in range(2, 61, 3)
        )
    assert wrong / 300 > 2 * ALPHA


def test_a_loss_is_found() -> None:
    generator = np.random.default_rng(3)
    sums = {str(name): summed([Score(float(value)) for value in generator.normal(0.05, 0.1, 40)]) for name in range(4)}
    found = interval_of(sums, ALPHA)
    assert 0.0 < found.lower < found.estimate < found.upper < 0.1
    assert found.estimate == pytest.approx(0.05, abs=0.03)


def test_one_cluster_weighs_no_more_than_all_others_together() -> None:
    honest = {str(name): summed([Score(0.0)] * 20) for name in range(4)}
    loud = summed([Score(1.0, 1.0)] * 2000)
    assert loud.weights > 4 * sum(own.weights for own in honest.values())
    estimate = interval_of({**honest, "loud": loud}, ALPHA).estimate
    assert estimate == pytest.approx(loud.weighted_scores / loud.weights / 2.0)


def test_few_pairs_say_nothing() -> None:
    sums = {"north": summed([Score(0.1)] * (LEAST_PAIRS - 1))}
    assert interval_of(sums, ALPHA) == UNKNOWN
    assert interval_of({}, ALPHA) == UNKNOWN
    assert interval_of({"north": summed([])}, ALPHA) == UNKNOWN


def test_pairs_in_which_the_versions_do_the_same_hide_nothing() -> None:
    generator = np.random.default_rng(5)
    differing = [Score(float(value), 0.08) for value in generator.normal(0.08, 0.1, 30)]
    same = [Score(float(value), 0.0) for value in generator.normal(0.0, 0.1, 90)]
    mixed = [score for group in zip(differing, same[:30], same[30:60], same[60:], strict=True) for score in group]
    blind = [Score(score.loss) for score in mixed]
    assert interval_of({"north": summed(mixed)}, ALPHA).lower > interval_of({"north": summed(blind)}, ALPHA).lower


@given(st.lists(st.floats(-1e12, 1e12), min_size=LEAST_PAIRS, max_size=30), st.integers(1, 4))
def test_an_interval_holds_its_estimate_and_no_score_counts_without_end(values: list[float], clusters: int) -> None:
    scores = [Score(value) for value in values]
    found = interval_of({str(name): summed(scores) for name in range(clusters)}, ALPHA)
    assert found.lower <= found.estimate <= found.upper
    assert -1.0 <= found.estimate <= 1.0


@given(st.floats(0.1, 1e4), st.floats(1e-4, 0.2))
def test_the_boundary_is_above_that_of_one_look(variance: float, alpha: float) -> None:
    from scipy import stats

    (found,) = boundaries(np.array([variance]), np.array([1.0]), alpha)
    assert found > stats.norm.isf(alpha) * math.sqrt(variance)


def test_alike_neighbours_are_seen_and_opposites_make_nothing_surer() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0.0, 0.1, 200)
    alike = np.repeat(noise[:50], 4)
    assert abs(likeness(noise)) < 0.2
    assert likeness(alike) > 0.6
    opposite = [Score(0.1), Score(-0.1)] * 30
    assert likeness(np.array([score.loss for score in opposite])) < -0.9
    shuffled = [Score(float(value)) for value in generator.permutation([score.loss for score in opposite])]
    width = [interval_of({"north": summed(scores)}, ALPHA).upper for scores in (opposite, shuffled)]
    assert width[0] == pytest.approx(width[1], rel=0.25)
