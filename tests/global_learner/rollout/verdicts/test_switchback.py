import math

import pytest

from global_learner.rollout.state import block_seconds_of

HOUR = 3600.0


@pytest.mark.parametrize(
    ("jct_hours", "block_hours"), [(0.01, 2.0), (1.0, 2.0), (1.6, 4.0), (4.2, 9.0), (6.0, 12.0), (400.0, 12.0)]
)
def test_blocks_are_as_long_as_a_clusters_jobs_make_them(jct_hours: float, block_hours: float) -> None:
    assert block_seconds_of(jct_hours * HOUR) == block_hours * HOUR


@pytest.mark.parametrize("jct", [0.0, -1.0, math.nan, math.inf])
def test_a_mean_that_is_none_is_refused(jct: float) -> None:
    with pytest.raises(ValueError, match="use a finite number above 0"):
        block_seconds_of(jct)
