import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policy_net.learning.gradient import clipped_ratios, effective_samples, mean_ratio

PROBABILITIES = st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=1, max_size=40)


@given(PROBABILITIES)
def test_a_choice_counts_by_its_ratio_and_never_more_than_once(pairs: list[tuple[float, float]]) -> None:
    head, behaviour = np.array(pairs).T
    ratios = clipped_ratios(np.log(head), behaviour)
    np.testing.assert_allclose(ratios, np.minimum(1.0, head / behaviour), rtol=1e-9)
    assert 0.0 < ratios.max() <= 1.0


@given(PROBABILITIES)
def test_a_decisions_ratio_is_the_geometric_mean_of_its_choices(pairs: list[tuple[float, float]]) -> None:
    head, behaviour = np.array(pairs).T
    forced = np.append(np.ones(len(pairs), dtype=bool), False)
    ratio = mean_ratio(np.append(np.log(head), 5.0), np.append(behaviour, 1.0), forced)
    assert math.isclose(ratio, math.prod(head / behaviour) ** (1 / len(pairs)), rel_tol=1e-6)
    assert mean_ratio(np.zeros(2), np.ones(2), np.zeros(2, dtype=bool)) == 1.0


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40))
def test_effective_samples_are_as_many_as_choices_only_where_all_weigh_alike(weights: list[float]) -> None:
    ratios = np.array(weights)
    effective = effective_samples(ratios)
    assert 1.0 - 1e-9 <= effective <= len(weights) + 1e-9
    assert math.isclose(effective, effective_samples(ratios, np.ones(len(weights))), rel_tol=1e-12)
    assert math.isclose(effective_samples(np.full(7, 0.3)), 7.0)
    assert math.isclose(effective_samples(np.array([1.0, 1.0]), np.array([3, 4])), 7.0)


def test_weights_that_underflow_leave_nothing() -> None:
    assert math.isnan(effective_samples(np.zeros(3)))
    assert effective_samples(np.zeros(3), np.ones(3)) == 0.0
