import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_net.errors import BadInput
from policy_net.throughput.parametric import MeasuredFit, SpeedPoint

points = st.lists(
    st.builds(SpeedPoint, st.integers(1, 16), st.integers(1, 16), st.just(0.0) | st.floats(1e-3, 1e6)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(points)
def test_a_fit_to_any_points_is_positive_wherever_the_type_can_train_or_is_refused(given_points) -> None:
    usable = sum(point.samples_per_second > 0 for point in given_points)
    if usable < 5:
        with pytest.raises(BadInput, match=f"'a' has {usable} points with a speed above 0"):
            MeasuredFit({"a": given_points}, "a test")
        return
    fit = MeasuredFit({"a": given_points}, "a test")
    grid = fit.grid("a")
    assert np.isfinite(grid).all()
    assert (grid[1:, 1:] > 0).all()
    assert not grid[0].any()
    assert not grid[:, 0].any()
    assert min(fit.coefficients("a")) >= 0


@settings(max_examples=40, deadline=None)
@given(points.filter(lambda chosen: sum(point.samples_per_second > 0 for point in chosen) >= 5), st.floats(0.01, 100))
def test_a_type_that_is_so_many_times_faster_is_believed_to_be_so_many_times_faster(chosen, factor: float) -> None:
    faster = [SpeedPoint(point.ps, point.workers, point.samples_per_second * factor) for point in chosen]
    slow, fast = (MeasuredFit({"a": one}, "a test").grid("a") for one in (chosen, faster))
    assert fast == pytest.approx(slow * factor, rel=1e-6)
