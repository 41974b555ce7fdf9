import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.backoff import Backoff, Failures


@given(st.integers(), st.floats(0.001, 10), st.floats(0.001, 100), st.floats(0.01, 1), st.integers(1, 100))
def test_waits_stay_between_their_share_and_their_bound(
    seed: int, first_seconds: float, longest_seconds: float, share: float, tries: int
) -> None:
    backoff = Backoff(seed, first_seconds, longest_seconds, share)
    bound_seconds = first_seconds
    for _ in range(tries):
        wait_seconds = backoff.next_seconds()
        allowed_seconds = min(bound_seconds, longest_seconds)
        assert share * allowed_seconds * (1 - 1e-12) <= wait_seconds <= allowed_seconds * (1 + 1e-12)
        bound_seconds *= 2


def test_a_success_begins_anew_and_seeds_differ() -> None:
    one, other = Backoff("alpha", 1.0, 60.0), Backoff("beta", 1.0, 60.0)
    waits = [one.next_seconds() for _ in range(8)]
    assert max(waits) > 10
    assert waits != [other.next_seconds() for _ in range(8)]
    one.reset()
    assert one.next_seconds() <= 1.0


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 0.5), (1.0, 0.0, 0.5), (1.0, 1.0, 0.0), (1.0, 1.0, 1.5)])
def test_waits_that_would_be_busy_loops_are_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="waits from"):
        Backoff(0, *wrong)


def test_failures_in_a_row_end_with_progress_and_all_are_counted() -> None:
    failures = Failures()
    for progress, in_a_row in ((0, 1), (0, 2), (5, 1), (5, 2), (4, 3), (6, 1)):
        failures = failures.and_another(progress, 100.0)
        assert failures.in_a_row == in_a_row
    assert failures.total == 6


def test_the_pause_after_failures_grows_with_progress_too_and_is_forgotten_after_ten_quiet_minutes() -> None:
    failures, pauses = Failures(), []
    for number in range(9):
        failures = failures.and_another(number, 60.0 * number)
        pauses.append(failures.pause_seconds(1.0, 60.0))
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    later = failures.and_another(10, failures.unix_seconds + 600.0)
    assert (later.total, later.pause_seconds(1.0, 60.0)) == (10, 0.0)
