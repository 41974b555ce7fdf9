"""Gradients from replays: mirrored differences point uphill, each in its parameter's own units, and are bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_net.exchange.spec import Weights
from policy_net.learning.settings import TwinSettings
from policy_net.learning.twin_gradient import twin_gradient

MANY = TwinSettings(pairs=1024, largest_difference=10.0)
SPREADS = np.array([0.1, 0.5, 2.0], dtype=np.float32)
SLOPES = np.array([0.3, -0.2, 0.05])


def log_linear(weights: Weights) -> float:
    """A mean JCT whose log has these slopes."""
    return 1000.0 * math.exp(float(SLOPES @ weights))


def test_of_a_cost_whose_log_is_linear_it_is_the_slope() -> None:
    head = np.array([1.0, -2.0, 3.0], dtype=np.float32)
    found = twin_gradient(head, SPREADS, log_linear, MANY, np.random.default_rng(1))
    # In units of the spreads, each with the error that so many draws leave.
    assert found.gradient * SPREADS == pytest.approx(SLOPES * SPREADS, abs=0.03)
    assert found.samples == found.effective_samples == 1024


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12))
def test_a_cost_that_does_not_change_says_nothing(seed: int, pairs: int) -> None:
    found = twin_gradient(
        np.zeros(3, np.float32), SPREADS, lambda _: 7.0, TwinSettings(pairs=pairs), np.random.default_rng(seed)
    )
    assert not found.gradient.any()
    assert found.statistics == {"difference_rms": 0.0, "clipped_share": 0.0}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_the_same_draws_give_the_same_bits_and_are_mirrored_around_the_head(seed: int) -> None:
    head = np.array([1.0, -2.0, 3.0], dtype=np.float32)
    asked: list[Weights] = []

    def cost(weights: Weights) -> float:
        asked.append(weights)
        return log_linear(weights)

    first, again = (
        twin_gradient(head, SPREADS, cost, TwinSettings(pairs=3), np.random.default_rng(seed)) for _ in range(2)
    )
    assert np.array_equal(first.gradient, again.gradient)
    for there, back in zip(asked[::2], asked[1::2], strict=True):
        assert (there + back) / 2.0 == pytest.approx(head, abs=1e-5)


def test_one_window_in_which_everything_hangs_on_one_job_counts_no_more_than_the_bound() -> None:
    def cliff(weights: Weights) -> float:
        return 1e6 if weights[0] > 0.0 else 1.0

    bounded = TwinSettings(pairs=4, largest_difference=0.1)
    found = twin_gradient(np.zeros(3, np.float32), SPREADS, cliff, bounded, np.random.default_rng(2))
    assert found.statistics["clipped_share"] == 1.0
    drawn = np.random.default_rng(2).standard_normal((4, 3))
    assert found.gradient * SPREADS == pytest.approx((0.1 * np.sign(drawn[:, :1]) * drawn).mean(axis=0), abs=1e-6)


def test_permuted_pairs_have_nothing_to_teach() -> None:
    head = np.zeros(3, dtype=np.float32)
    found = twin_gradient(head, SPREADS, log_linear, MANY, np.random.default_rng(3), permute=True)
    assert found.gradient * SPREADS == pytest.approx(np.zeros(3), abs=0.03)
    honest = twin_gradient(head, SPREADS, log_linear, MANY, np.random.default_rng(3))
    assert np.abs(honest.gradient * SPREADS).max() > 0.07


@pytest.mark.parametrize("size", [0.25, 4.0])
def test_perturbations_are_as_large_as_asked_and_the_slope_is_the_same(size: float) -> None:
    head = np.array([1.0, -2.0, 3.0], dtype=np.float32)
    asked: list[Weights] = []

    def cost(weights: Weights) -> float:
        asked.append(weights)
        return log_linear(weights)

    wanted = TwinSettings(pairs=1024, largest_difference=10.0, perturbation=size)
    found = twin_gradient(head, SPREADS, cost, wanted, np.random.default_rng(1))
    assert found.gradient * SPREADS == pytest.approx(SLOPES * SPREADS, abs=0.03)
    assert (np.std(asked, axis=0) / SPREADS) == pytest.approx(size, rel=0.1)
