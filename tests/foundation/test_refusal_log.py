import math

from hypothesis import given
from hypothesis import strategies as st

from foundation.refusal_log import MOST_KEYS, QUIET_SECONDS, RefusalWindows


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_has_a_line_and_the_next_line_tells_how_many_had_none() -> None:
    clock = Clock()
    windows: RefusalWindows[str] = RefusalWindows(clock)
    assert windows.on_refusal("bad") == ("bad", 0)
    assert [windows.on_refusal("bad") for _ in range(3)] == [None] * 3
    assert windows.on_refusal("worse") == ("worse", 0)
    clock.now = QUIET_SECONDS
    assert windows.on_refusal("bad") == ("bad", 3)
    assert windows.on_refusal("bad") is None


def test_an_owner_with_a_timer_ends_quiet_times_itself() -> None:
    clock = Clock()
    windows: RefusalWindows[str] = RefusalWindows(clock, quiet_seconds=math.inf)
    windows.on_refusal("bad")
    clock.now = 1000.0
    assert windows.on_refusal("bad") is None
    assert windows.close("bad") == (1, 1000.0)
    assert windows.close("bad") == (0, 0.0)
    assert windows.on_refusal("bad") == ("bad", 0)


@given(st.lists(st.tuples(st.integers(0, 600), st.floats(0, 20)), max_size=800))
def test_every_refusal_is_told_of_and_memory_is_bounded(steps: list[tuple[int, float]]) -> None:
    clock = Clock()
    windows: RefusalWindows[int] = RefusalWindows(clock, others=lambda key: -1)
    reported = 0
    keys = {-1}
    for key, seconds in steps:
        clock.now += seconds
        line = windows.on_refusal(key)
        if line is not None:
            reported += 1 + line[1]
            keys.add(line[0])
    left = [windows.close(key) for key in keys]
    assert reported + sum(count for count, _ in left) == len(steps)


def test_without_a_key_for_others_the_oldest_kind_is_dropped() -> None:
    windows: RefusalWindows[int] = RefusalWindows(Clock())
    for key in range(MOST_KEYS + 1):
        assert windows.on_refusal(key) == (key, 0)
    assert windows.on_refusal(0) == (0, 0)
    assert windows.on_refusal(MOST_KEYS) is None
