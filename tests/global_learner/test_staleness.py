import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.updates.step_size import excess_staleness, staleness_scale


@pytest.mark.parametrize(
    ("staleness", "active", "scale"),
    [(0, 1, 1.0), (1, 1, 0.5), (2, 3, 1.0), (5, 3, 0.5), (8, 3, 1 / 3), (99, 100, 1.0), (0, 0, 1.0)],
)
def test_a_round_of_the_fleet_beyond_the_usual_halves_the_step(staleness: int, active: int, scale: float) -> None:
    assert staleness_scale(staleness, active) == pytest.approx(scale)


@given(st.integers(0, 10_000), st.integers(1, 1000))
def test_more_staleness_never_steps_further_and_more_clusters_never_shorter(staleness: int, active: int) -> None:
    scale = staleness_scale(staleness, active)
    assert 0.0 < scale <= 1.0
    assert staleness_scale(staleness + 1, active) <= scale <= staleness_scale(staleness, active + 1)
    assert excess_staleness(staleness, active) <= staleness
