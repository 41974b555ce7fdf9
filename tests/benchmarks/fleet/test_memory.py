import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.measure import Sample, growth_percent, watched
from benchmarks.processes import resident_bytes


def samples(*megabytes: float) -> list[Sample]:
    return [Sample(float(second), round(1e6 * size), 0.0) for second, size in enumerate(megabytes)]


def test_growth_is_from_the_moment_that_was_named_to_the_end() -> None:
    assert growth_percent(samples(50, 90, 100, 100, 110), 2.0) == pytest.approx(10.0)
    assert growth_percent(samples(100, 100, 100), 0.0) == 0.0


def test_one_large_moment_is_no_growth() -> None:
    assert growth_percent(samples(*[100] * 29, 400), 0.0) == 0.0


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50), st.integers(1, 10))
def test_growth_does_not_depend_on_the_unit(sizes: list[int], factor: int) -> None:
    scaled = samples(*(factor * size for size in sizes))
    assert growth_percent(scaled, 0.0) == pytest.approx(growth_percent(samples(*sizes), 0.0))


def test_nothing_late_enough_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sample of 9 s"):
        growth_percent(samples(1, 1), 9.0)


def test_a_process_is_watched_from_the_begin_to_the_end_of_the_context() -> None:
    with watched(os.getpid(), period_seconds=3600.0) as found:
        held = bytearray(os.urandom(1 << 25))
    assert len(found) == 2
    assert found[0].seconds <= found[1].seconds
    assert found[1].resident_bytes - found[0].resident_bytes > len(held) // 2


def test_a_process_that_is_gone_has_no_memory() -> None:
    with pytest.raises(OSError, match=r"\d"):
        resident_bytes(2**22 + 1)
