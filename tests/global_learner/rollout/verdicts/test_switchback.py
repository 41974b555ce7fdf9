import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.rollout.rollout_assignments import (
    LONGEST_BLOCK_SECONDS,
    SHORTEST_BLOCK_SECONDS,
    schedule_of,
)

HOUR = 3600.0


@pytest.mark.parametrize(
    ("jct_hours", "block_hours"), [(0.01, 2.0), (1.0, 2.0), (1.6, 4.0), (4.2, 9.0), (6.0, 12.0), (400.0, 12.0)]
)
def test_blocks_are_as_long_as_a_clusters_jobs_make_them(jct_hours: float, block_hours: float) -> None:
    schedule = schedule_of(jct_hours * HOUR, 0.0)
    assert schedule.block_seconds == block_hours * HOUR
    assert schedule.washout_seconds == pytest.approx(block_hours * HOUR / 3)


@pytest.mark.parametrize("jct", [0.0, -1.0, math.nan, math.inf])
def test_a_mean_that_is_none_is_refused(jct: float) -> None:
    with pytest.raises(ValueError, match="use a finite number above 0"):
        schedule_of(jct, 0.0)


@given(st.floats(1.0, 1e7), st.floats(0.0, 2e9), st.floats(-1e7, 1e7))
def test_every_time_is_in_one_block_and_what_counts_lies_in_it(jct: float, start: float, later: float) -> None:
    schedule = schedule_of(jct, start)
    assert SHORTEST_BLOCK_SECONDS <= schedule.block_seconds <= LONGEST_BLOCK_SECONDS
    block = schedule.block_at(start + later)
    begin, end = schedule.counted_seconds(block)
    assert block >= 0
    assert begin < end <= start + (block + 1) * schedule.block_seconds + 1e-3
    if later >= 0.0:
        assert end - schedule.block_seconds - 1e-3 <= start + later <= end + 1e-3
