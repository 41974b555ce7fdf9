"""A clock that counts only what its process was awake for, on a made-up clock."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from foundation.clocks import AwakeClock, boot_seconds, deadline


class MadeUpClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_looks_in_time_count_in_full_and_a_gap_counts_as_one_late_look() -> None:
    source = MadeUpClock()
    clock = AwakeClock(2.0, source)
    began = clock()
    for _ in range(10):
        source.seconds += 1.5
        clock()
    assert clock() - began == 15.0
    assert clock.missed_seconds == 0.0
    source.seconds += 3600.0
    assert clock() - began == 17.0
    assert clock.missed_seconds == 3598.0


@given(st.lists(st.floats(0.0, 1e6)))
def test_it_never_goes_back_and_what_it_did_not_count_is_known(gaps: list[float]) -> None:
    source = MadeUpClock()
    clock = AwakeClock(5.0, source)
    seen = [clock()]
    for gap in gaps:
        source.seconds += gap
        seen.append(clock())
    assert seen == sorted(seen)
    assert all(later - earlier <= 5.0 + 1e-6 for earlier, later in itertools.pairwise(seen))
    assert abs(seen[-1] - seen[0] + clock.missed_seconds - (source.seconds - 1000.0)) < 1e-3


def test_time_since_boot_passes() -> None:
    assert 0.0 < boot_seconds() <= boot_seconds()


def test_a_deadline_is_over_after_its_seconds_and_none_never() -> None:
    source = MadeUpClock()
    is_over = deadline(10.0, source)
    source.seconds += 9.5
    assert not is_over()
    source.seconds += 0.5
    assert is_over()
    assert not deadline(None)()
