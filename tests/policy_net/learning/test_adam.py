"""Steps on plain vectors: their length is the rate in units, the region holds them, an average follows."""

import numpy as np
import pytest

from policy_net.learning.adam import BLOCK, AdamConstants, TrustRegion, adam_step, follow

UNITS = np.array([0.1, 1.0, 5.0], dtype=np.float32)


def test_a_first_step_is_the_rate_in_each_parameters_units_and_a_later_count_continues_the_moments() -> None:
    weights, first, second = (np.zeros(3, np.float32) for _ in range(3))
    gradient = np.array([3.0, -0.01, 70.0], np.float32)
    adam_step(weights, first, second, 1, gradient, 0.2, AdamConstants(), UNITS)
    np.testing.assert_allclose(weights, [-0.02, 0.2, -1.0], rtol=1e-4)
    adam_step(weights, first, second, 2, gradient, 0.2, AdamConstants(), UNITS)
    np.testing.assert_allclose(weights, [-0.04, 0.4, -2.0], rtol=1e-4)


def test_no_parameter_leaves_the_region_and_radius_0_is_none() -> None:
    weights = np.array([1.0, 1.0, 1.0], np.float32)
    region = TrustRegion.around(weights, 2.0, UNITS)
    assert region is not None
    weights += np.array([9.0, -9.0, 9.0], np.float32)
    region.keep_in(weights)
    np.testing.assert_allclose(weights, [1.2, -1.0, 10.0], rtol=1e-6)
    assert TrustRegion.around(weights, 0.0, UNITS) is None


@pytest.mark.parametrize("size", [3, BLOCK + 1])
def test_an_average_keeps_its_share_of_itself(size: int) -> None:
    average, weights = np.full(size, 2.0, np.float32), np.full(size, 4.0, np.float32)
    follow(average, weights, 0.75)
    np.testing.assert_allclose(average, 2.5)
