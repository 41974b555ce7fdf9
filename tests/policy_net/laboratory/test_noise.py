import numpy as np
import pytest
from numpy.typing import NDArray

from policy_net.laboratory.noise import job_key, noise_factor


def factors_of(jobs: int, decisions: int, relative_sd: float) -> NDArray[np.float64]:
    """Shape (jobs, decisions)."""
    keys = [job_key(1, f"job-{number}") for number in range(jobs)]
    return np.array([[noise_factor(key, decision, relative_sd) for decision in range(decisions)] for key in keys])


@pytest.mark.parametrize("relative_sd", [0.05, 0.27, 0.5])
def test_factors_have_mean_one_and_the_asked_standard_deviation(relative_sd: float) -> None:
    factors = factors_of(400, 500, relative_sd)
    standard_error = relative_sd / np.sqrt(factors.size)
    assert abs(factors.mean() - 1.0) < 5 * standard_error
    assert factors.std() == pytest.approx(relative_sd, rel=0.05)


def test_factors_of_neighbouring_decisions_and_jobs_are_unrelated() -> None:
    factors = factors_of(300, 300, 0.3)
    assert abs(np.corrcoef(factors[:-1].ravel(), factors[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(factors[:, :-1].ravel(), factors[:, 1:].ravel())[0, 1]) < 0.02


def test_no_noise_is_exactly_one() -> None:
    assert noise_factor(job_key(0, "a"), 3, 0.0) == 1.0


def test_seeds_jobs_and_decisions_all_matter() -> None:
    draws = {noise_factor(job_key(seed, job), decision, 0.3) for seed in (0, 1) for job in "ab" for decision in (0, 1)}
    assert len(draws) == 8
