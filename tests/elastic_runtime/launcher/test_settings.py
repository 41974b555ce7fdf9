"""A coordinator is started again, but not for ever."""

from elastic_runtime.launcher.settings import RestartLimit


def test_pauses_grow_up_to_a_limit_and_the_number_is_bounded() -> None:
    restarts = RestartLimit(limit=4, window_seconds=100.0, backoff_seconds=1.0, longest_seconds=3.0)
    assert [restarts.on_death(10.0) for _ in range(5)] == [11.0, 12.0, 13.0, 13.0, None]


def test_what_happened_long_ago_does_not_count() -> None:
    restarts = RestartLimit(limit=1, window_seconds=100.0, backoff_seconds=1.0, longest_seconds=3.0)
    assert restarts.on_death(0.0) == 1.0
    assert restarts.on_death(99.0) is None
    assert restarts.on_death(100.0) == 101.0
