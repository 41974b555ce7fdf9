"""A gradient is as short as it may be, and its noise has the size that the bound asks."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policy_net.privacy.mechanism import GaussianNoise, fresh_seed, shortened


@given(
    arrays(np.float32, st.integers(1, 60), elements=st.floats(-(2.0**120), 2.0**120, width=32)),
    st.floats(1e-6, 1e6),
)
def test_no_gradient_is_longer_than_the_bound_and_none_turns(gradient, clip_norm) -> None:
    short = shortened(gradient, clip_norm)
    assert math.sqrt(float(short @ short)) <= clip_norm
    exact = gradient.astype(np.float64)
    norm = math.sqrt(float(exact @ exact))
    if norm <= clip_norm * (1 - 1e-9):
        assert (short == exact).all()
    else:
        np.testing.assert_allclose(short, exact * (clip_norm / norm), rtol=1e-9)


def test_the_noise_has_the_deviation_of_multiplier_times_bound_in_every_parameter() -> None:
    gradient = np.zeros(50, np.float32)
    gradient[0] = 30.0
    seeds = itertools.count()
    noise = GaussianNoise(2.0, 1.5, lambda: next(seeds))
    drawn = np.stack([noise.on(gradient) for _ in range(4000)])
    centre = np.zeros(50)
    centre[0] = 2.0  # clipped
    assert drawn.dtype == np.float32
    # Standard errors: of a mean 3 / √4000 = 0.047, of a deviation 3 / √8000 = 0.034; five of them.
    np.testing.assert_allclose(drawn.mean(axis=0), centre, atol=0.24)
    np.testing.assert_allclose(drawn.std(axis=0), 3.0, atol=0.17)
    between = np.corrcoef(drawn.T) - np.eye(50)
    assert np.abs(between).max() < 0.1


def test_the_same_seed_gives_the_same_noise_and_seeds_of_the_system_never_repeat() -> None:
    gradient = np.ones(10, np.float32)
    assert (GaussianNoise(1.0, 1.0, lambda: 7).on(gradient) == GaussianNoise(1.0, 1.0, lambda: 7).on(gradient)).all()
    fresh = GaussianNoise(1.0, 1.0)
    assert not (fresh.on(gradient) == fresh.on(gradient)).any()
    assert len({fresh_seed() for _ in range(100)}) == 100


def test_the_gradient_itself_is_left_as_it_was() -> None:
    gradient = np.full(10, 9.0, np.float32)
    GaussianNoise(1.0, 1.0).on(gradient)
    assert gradient == pytest.approx(9.0)
