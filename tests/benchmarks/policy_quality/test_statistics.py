import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy_quality.statistics import best_of_each, bootstrap_interval, compare, unit_log_ratios

RATIOS = st.lists(st.floats(-3, 3), min_size=2, max_size=30)


def test_pairs_of_a_unit_are_averaged_before_units_are() -> None:
    own = {"a1": 1.0, "a2": 1.0, "a3": 1.0, "b1": 4.0}
    other = {"a1": 2.0, "a2": 2.0, "a3": 2.0, "b1": 2.0}
    ratios = unit_log_ratios(own, other, {pair: pair[0] for pair in own})
    assert ratios == pytest.approx({"a": -math.log(2), "b": math.log(2)})
    comparison = compare(list(ratios.values()))
    assert comparison is not None
    assert comparison.mean == pytest.approx(1.0)


def test_only_what_both_have_is_compared() -> None:
    assert unit_log_ratios({"x": 1.0, "y": 3.0}, {"y": 1.0, "z": 1.0}, dict(zip("xyz", "abc", strict=True))) == {
        "b": math.log(3)
    }


def test_five_percent_is_a_win_and_four_is_none() -> None:
    comparison = compare([math.log(0.95), math.log(0.96), math.log(1.04), math.log(1.05)])
    assert comparison is not None
    assert (comparison.wins, comparison.losses, comparison.units) == (1, 1, 4)
    assert comparison.worst == pytest.approx(1.05)


def test_nothing_to_compare_has_no_figures_and_one_unit_no_interval() -> None:
    assert compare([]) is None
    one = compare([0.1])
    assert one is not None
    assert one.interval is None


@given(RATIOS)
def test_the_interval_lies_within_the_units_and_holds_their_mean(ratios: list[float]) -> None:
    interval = bootstrap_interval(ratios)
    assert interval is not None
    low, high = interval
    mean = math.exp(math.fsum(ratios) / len(ratios))
    assert math.exp(min(ratios)) * 0.999 <= low <= mean * 1.001
    assert mean * 0.999 <= high <= math.exp(max(ratios)) * 1.001


@given(RATIOS)
def test_swapping_policy_and_reference_inverts_the_comparison(ratios: list[float]) -> None:
    one, other = compare(ratios), compare([-ratio for ratio in ratios])
    assert one is not None
    assert other is not None
    assert one.mean == pytest.approx(1 / other.mean)
    assert one.median == pytest.approx(1 / other.median)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1).normal(-0.2, 0.3, size=(200, 22))
    intervals = [bootstrap_interval(row) for row in draws.tolist()]
    covered = sum(interval is not None and interval[0] <= math.exp(-0.2) <= interval[1] for interval in intervals)
    assert 0.88 <= covered / len(draws) <= 0.99


def test_the_best_of_each_unit_is_chosen_among_those_that_all_have() -> None:
    ratios = {"one": {"a": -1.0, "b": 0.0, "c": 0.0}, "other": {"a": 0.0, "b": -2.0}}
    assert best_of_each(ratios) == {"a": -1.0, "b": -2.0}
    assert best_of_each({}) == {}
