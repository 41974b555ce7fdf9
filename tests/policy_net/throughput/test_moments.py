"""Fits from sums of products: what they find is best, and where rounding is in the way they say so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.throughput.nonnegative import nonnegative_fit, nonnegative_of_moments


def problem(seed: int, unknowns: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix whose columns are of several sizes, some of them nearly alike, and what it is to come to."""
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(unknowns + 3, unknowns)) + generator.normal(size=unknowns)
    return matrix * np.exp(2.0 * generator.normal(size=unknowns)), generator.normal(size=unknowns + 3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_no_other_coefficients_leave_less(seed: int, unknowns: int) -> None:
    matrix, target = problem(seed, unknowns)
    found = nonnegative_of_moments((matrix.T @ matrix).tolist(), (matrix.T @ target).tolist())
    assert found is not None
    assert min(found) >= 0.0
    left, least = (np.linalg.norm(matrix @ x - target) for x in (found, nonnegative_fit(matrix, target)))
    assert left <= least * (1.0 + 1e-9)


def test_coefficients_that_would_be_negative_are_zero() -> None:
    assert nonnegative_of_moments([[1.0, 0.0], [0.0, 4.0]], [-1.0, 2.0]) == [0.0, 0.5]
    assert nonnegative_of_moments([[1.0, 0.0], [0.0, 4.0]], [-1.0, -2.0]) == [0.0, 0.0]


def test_one_that_helps_at_first_and_no_more_later_is_taken_back() -> None:
    matrix = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.1, 1.1]])
    target = np.array([1.0, 1.0, 1.9])
    found = nonnegative_of_moments((matrix.T @ matrix).tolist(), (matrix.T @ target).tolist())
    assert found == pytest.approx(nonnegative_fit(matrix, target).tolist(), abs=1e-9)


def test_only_the_lower_half_counts() -> None:
    moments, target = [[2.0, 9.0], [1.0, 3.0]], [1.0, 1.0]
    assert nonnegative_of_moments(moments, target) == nonnegative_of_moments([[2.0, 1.0], [1.0, 3.0]], target)


@pytest.mark.parametrize(
    "moments", [[[np.nan, 0.0], [0.0, np.nan]], [[0.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, -1.0]]]
)
def test_where_there_is_no_sound_solution_there_is_none(moments: list[list[float]]) -> None:
    assert nonnegative_of_moments(moments, [1.0, 1.0]) is None


def test_columns_that_are_alike_but_for_rounding_are_not_told_apart() -> None:
    """The second explains what the first leaves, which is rounding."""
    moments = [[4.0, 2.0], [2.0, 1.0 + 1e-15]]
    assert nonnegative_of_moments(moments, [2.0, 1.0 + 1e-9]) is None


@pytest.mark.parametrize("target", [[np.inf, 1.0], [np.nan, 1.0], [1e308, 1e308]])
def test_what_is_not_finite_is_no_solution(target: list[float]) -> None:
    assert nonnegative_of_moments([[1e-300, 0.0], [0.0, 1e-300]], target) is None
