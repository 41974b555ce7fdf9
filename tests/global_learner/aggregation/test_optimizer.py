import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import vector

from global_learner.aggregation.base import ImmediateAggregator, apply_adam, move_average
from global_learner.storage.snapshot import AdamState
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from policy_net.learning.adam import BLOCK, AdamConstants


def textbook_adam(weights, gradients, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Kingma & Ba, Algorithm 1, line by line in double precision."""
    weights = weights.astype(np.float64)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        slope = gradient.astype(np.float64)
        first = beta1 * first + (1 - beta1) * slope
        second = beta2 * second + (1 - beta2) * slope**2
        weights -= rate * (first / (1 - beta1**step)) / (np.sqrt(second / (1 - beta2**step)) + epsilon)
    return weights


def test_follows_the_textbook() -> None:
    gradients = [vector(seed) * 0.1 for seed in range(50)]
    state = AdamState.start(vector(99))
    for gradient in gradients:
        apply_adam(state, gradient, 1e-2, AdamConstants())
    np.testing.assert_allclose(state.weights, textbook_adam(vector(99), gradients, 1e-2), atol=1e-5)


def test_the_first_step_is_the_rate_whatever_the_gradients_size() -> None:
    state = AdamState.start(np.zeros(3, np.float32))
    apply_adam(state, np.array([1e-3, -5.0, 200.0], np.float32), 0.25, AdamConstants())
    np.testing.assert_allclose(state.weights, [-0.25, 0.25, -0.25], rtol=1e-4)


def test_blocks_do_not_change_the_result() -> None:
    size = 2 * BLOCK + 17
    rng = np.random.default_rng(5)
    weights, gradient = (rng.normal(size=size).astype(np.float32) for _ in range(2))
    whole, tail = AdamState.start(weights), AdamState.start(weights[-100:])
    for _ in range(3):
        apply_adam(whole, gradient, 1e-3, AdamConstants())
        apply_adam(tail, gradient[-100:], 1e-3, AdamConstants())
    assert whole.weights[-100:].tobytes() == tail.weights.tobytes()


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20))
def test_rate_zero_leaves_every_bit_of_the_weights(values: list[float]) -> None:
    weights = np.array([*values, -0.0, 0.0, 1e-45], np.float32)
    state = AdamState.start(weights)
    for seed in range(3):
        gradient = np.random.default_rng(seed).normal(size=weights.size).astype(np.float32)
        apply_adam(state, gradient, 0.0, AdamConstants())
    assert state.weights.tobytes() == weights.tobytes()
    assert state.step == 3


def test_a_copy_does_not_move_with_the_original() -> None:
    state = AdamState.start(vector(1))
    copy = state.copy()
    apply_adam(state, vector(2), 1e-2, AdamConstants())
    assert copy.step == 0
    assert not np.array_equal(copy.weights, state.weights)


def test_the_average_is_the_exponential_one() -> None:
    state = AdamState.start(np.zeros(2, np.float32))
    move_average(state, 0.75)
    state.weights += np.array([4.0, 8.0], np.float32)
    move_average(state, 0.75)
    assert state.average is not None
    assert state.average.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_a_head_publishes_its_average_only_if_asked(decay: float) -> None:
    from learner_makers import applied

    head = Head(AdamState.start(vector(0)), Ledger(8), ImmediateAggregator(AdamConstants()), decay)
    for step in (1, 2, 3):
        head.apply(applied(step, learning_rate=0.1))
    assert np.array_equal(head.publishable, head.weights) is (decay == 0.0)


def test_a_step_is_counted_in_units_and_the_gradients_own_size_does_not_matter() -> None:
    units = np.array([0.1, 1.0, 5.0], np.float32)
    state, other = (AdamState.start(np.zeros(3, np.float32)) for _ in range(2))
    for step in range(4):
        slope = np.array([1.0, -2.0, 3.0], np.float32) + step
        apply_adam(state, slope, 0.25, AdamConstants(), units)
        apply_adam(other, 100.0 * slope, 0.25, AdamConstants())
    assert state.weights == pytest.approx(other.weights * units, rel=1e-4)


def test_no_units_and_units_of_one_give_the_same_bits() -> None:
    state, other = AdamState.start(vector(1)), AdamState.start(vector(1))
    for step in range(3):
        apply_adam(state, vector(step), 1e-2, AdamConstants())
        apply_adam(other, vector(step), 1e-2, AdamConstants(), np.ones_like(state.weights))
    assert np.array_equal(state.weights, other.weights)
