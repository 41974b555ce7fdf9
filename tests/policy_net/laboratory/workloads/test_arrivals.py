import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.laboratory.workloads.generator import ARRIVAL_PATTERNS, arrivals_per_slot

patterns = st.sampled_from(sorted(ARRIVAL_PATTERNS))


@given(patterns, st.integers(1, 300), st.integers(1, 20), st.integers(0, 2**32))
def test_all_jobs_arrive_the_first_in_slot_0_and_the_last_in_the_last(
    pattern: str, jobs: int, most: int, seed: int
) -> None:
    counts = arrivals_per_slot(pattern, jobs, most, np.random.default_rng(seed))
    assert sum(counts) == jobs
    assert counts[0] > 0
    assert counts[-1] > 0
    assert min(counts) >= 0
    if pattern != "poisson":
        assert max(counts) <= most


def spans(pattern: str, jobs: int, most: int) -> float:
    return float(np.mean([len(arrivals_per_slot(pattern, jobs, most, np.random.default_rng(s))) for s in range(100)]))


@pytest.mark.parametrize("pattern", sorted(ARRIVAL_PATTERNS))
def test_arrivals_span_as_many_slots_as_those_of_the_reference_traces(pattern: str) -> None:
    assert 22 <= spans(pattern, 60, 3) <= 25  # theirs: 23
    assert 25 <= spans(pattern, 200, 10) <= 31  # theirs: 29 and 31


def test_google_like_rates_of_neighbouring_slots_are_correlated_and_others_are_not() -> None:
    def correlation(pattern: str) -> float:
        counts = arrivals_per_slot(pattern, 20_000, 20, np.random.default_rng(0))[:-1]
        return float(np.corrcoef(counts[:-1], counts[1:])[0, 1])

    assert correlation("google") > 0.3
    assert abs(correlation("uniform")) < 0.1
    assert abs(correlation("poisson")) < 0.1
