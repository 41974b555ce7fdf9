import pytest

from policy_net.laboratory.tuning.space import Values, space_of
from policy_net.laboratory.tuning.study_file import STARTUP_TRIALS, TrialReport, is_given_up, propose

SPACE = space_of("dl2")


def known(count: int) -> list[tuple[Values, TrialReport]]:
    """Trials whose values were proposed; every third failed, and every fourth was given up."""
    found: list[tuple[Values, TrialReport]] = []
    for number in range(count):
        values = propose(SPACE, 0, found, ())
        scores = () if number % 3 == 2 else (11.0, 10.0 + float(values["learning_rate"]))
        failure = None if scores else "it found nothing to learn from"
        scores = scores[:1] if number % 4 == 3 else scores
        found.append((values, TrialReport(scores, given_up=number % 4 == 3, failure=failure)))
    return found


def test_what_is_proposed_follows_from_what_is_known_and_lies_within_the_space() -> None:
    trials = known(STARTUP_TRIALS + 4)
    assert dict(trials[0][0]) == SPACE.defaults
    assert known(STARTUP_TRIALS + 4) == trials
    for values, _ in trials:
        for item in SPACE.parameters:
            value = values[item.name]
            assert value in item.choices if item.choices else item.low <= float(value) <= item.high
            assert isinstance(value, int) or not item.whole or item.choices


def test_another_seed_and_other_trials_of_the_batch_give_other_values() -> None:
    trials = known(STARTUP_TRIALS + 2)
    first = propose(SPACE, 0, trials, ())
    assert propose(SPACE, 1, trials, ()) != first
    assert propose(SPACE, 0, trials, [first]) != first


@pytest.mark.parametrize(("scores", "given_up"), [((3.0,), True), ((2.0,), False), ((3.0, 0.5), False)])
def test_a_trial_is_given_up_where_it_is_worse_than_the_median(scores: tuple[float, ...], given_up: bool) -> None:
    earlier = [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (3.0, 1.0, 1.0), (2.5, 1.0, 1.0), (1.5, 1.0, 1.0)]
    assert is_given_up(earlier, scores) is given_up
    assert not is_given_up(earlier[:3], (9.0,)), "of three there is no median to speak of"
