import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.laboratory.noise import job_key, noise_factor, noise_factors


@pytest.mark.parametrize("relative_sd", [0.05, 0.27, 0.5])
def test_factors_have_mean_one_and_the_asked_standard_deviation(relative_sd: float) -> None:
    keys = np.array([job_key(1, f"job-{number}") for number in range(400)], dtype=np.uint64)
    factors = noise_factors(keys[:, None], np.arange(500, dtype=np.uint64)[None, :], relative_sd)
    standard_error = relative_sd / np.sqrt(factors.size)
    assert abs(factors.mean() - 1.0) < 5 * standard_error
    assert factors.std() == pytest.approx(relative_sd, rel=0.05)


def test_factors_of_neighbouring_decisions_and_jobs_are_unrelated() -> None:
    keys = np.array([job_key(1, f"job-{number}") for number in range(300)], dtype=np.uint64)
    factors = noise_factors(keys[:, None], np.arange(300, dtype=np.uint64)[None, :], 0.3)
    assert abs(np.corrcoef(factors[:-1].ravel(), factors[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(factors[:, :-1].ravel(), factors[:, 1:].ravel())[0, 1]) < 0.02


@given(st.integers(0, 9), st.text(max_size=5), st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_one_factor_and_many_are_the_same(seed: int, job_id: str, decision: int, relative_sd: float) -> None:
    key = job_key(seed, job_id)
    many = noise_factors(np.array([key], dtype=np.uint64), np.array([decision], dtype=np.uint64), relative_sd)
    assert many[0] == pytest.approx(noise_factor(key, decision, relative_sd), rel=1e-12)


def test_no_noise_is_exactly_one() -> None:
    assert noise_factor(job_key(0, "a"), 3, 0.0) == 1.0
    assert noise_factors(np.array([1], dtype=np.uint64), np.array([1], dtype=np.uint64), 0.0).tolist() == [1.0]


def test_seeds_jobs_and_decisions_all_matter() -> None:
    draws = {noise_factor(job_key(seed, job), decision, 0.3) for seed in (0, 1) for job in "ab" for decision in (0, 1)}
    assert len(draws) == 8
