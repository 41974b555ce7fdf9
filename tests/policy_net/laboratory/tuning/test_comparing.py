import math

import pytest

from policy_net.laboratory.tuning.comparing import best_of, change_between, confirmation, ranked, row
from policy_net.laboratory.tuning.study_file import Trial, TrialReport


def test_an_interval_is_students_over_pairs_of_worlds() -> None:
    found = change_between([1.0, 2.0, 3.0], [1.1, 2.2, 3.3])
    # Differences -0.1, -0.2, -0.3: mean -0.2, standard error 0.1 / √3, and t of two degrees at 95% is 4.3027.
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert found.mean == pytest.approx(math.expm1(-0.2))
    assert (found.low, found.high) == pytest.approx((math.expm1(-0.2 - reach), math.expm1(-0.2 + reach)), rel=1e-5)
    assert not found.shown
    assert change_between([1.0, 2.0], [1.5, 2.5001]).shown


def test_of_one_world_there_is_no_interval() -> None:
    found = change_between([1.0], [2.0])
    assert (found.low, found.high, found.shown) == (None, None, False)
    assert str(found) == "-63.2%"


TRIALS = [
    Trial(0, {"sigma": 0.2}, TrialReport((3.0, 2.0), (1.0, 3.0))),
    Trial(1, {"sigma": 0.3}, TrialReport((1.0,), (1.0, 1.0), given_up=True)),
    Trial(2, {"sigma": 0.4}, TrialReport((0.5,), failure="stuck")),
    Trial(3, {"sigma": 0.5}, None),
    Trial(4, {"sigma": 0.6}, TrialReport((3.0, 1.5), (0.5, 2.5))),
    Trial(5, {"sigma": 0.7}, TrialReport((3.0, 1.5), (0.5, 2.5))),
]


def test_only_trials_that_went_to_their_end_are_compared_and_the_first_of_equals_is_best() -> None:
    assert [trial.number for trial in ranked(TRIALS)] == [4, 5, 0]
    best = best_of(TRIALS)
    assert best is not None
    assert best.number == 4
    assert best_of(TRIALS[1:4]) is None
    rows = [row(trial, TRIALS[0]) for trial in TRIALS]
    assert [facts["state"] for facts in rows] == ["done", "given up", "failed", "under way", "done", "done"]
    assert [facts.get("change") for facts in rows[:4]] == [None] * 4
    assert [facts["change"] for facts in rows[4:]] == [pytest.approx(math.expm1(-0.5), abs=1e-5)] * 2
    assert rows[2]["failure"] == "stuck"


def test_a_confirmation_is_of_all_seeds_or_none() -> None:
    confirmed = {(0, 1): [1.0, 2.0], (0, 2): [1.2, 2.2], (4, 1): [0.9, 1.9], (4, 2): [1.1, 2.1]}
    found = confirmation(4, [1, 2], confirmed)
    assert found is not None
    assert found.mean == pytest.approx(math.expm1(-0.1))
    del confirmed[0, 2]
    assert confirmation(4, [1, 2], confirmed) is None
