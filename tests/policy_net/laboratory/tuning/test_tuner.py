"""A study is the same study however it is run: by how many at a time, in how many runs, and wherever it was killed."""

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from studies import SPACE, FakeEngine, facts, opened, plan

from foundation.clocks import deadline
from policy_net.laboratory.tuning.comparing import best_of
from policy_net.laboratory.tuning.study_file import StudyFile
from policy_net.laboratory.tuning.tuner import CONFIRMING_SEEDS, StudyOutcome, tune

TRIALS = 14


def run(folder: Path, trials: int = TRIALS, seed: int = 0, batch: int = 4) -> StudyOutcome:
    folder.mkdir(exist_ok=True)
    with closing(opened(folder)) as study:
        return tune(plan(batch), study, FakeEngine(seed), trials)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> StudyOutcome:
    return run(tmp_path_factory.mktemp("undisturbed"))


def test_a_study_begins_with_the_defaults_finds_better_ones_and_confirms_them(undisturbed: StudyOutcome) -> None:
    assert dict(undisturbed.trials[0].values) == SPACE.defaults
    assert [trial.number for trial in undisturbed.trials] == list(range(TRIALS))
    states = {"given up": 0, "failed": 0, "done": 0}
    for trial in undisturbed.trials:
        assert trial.report is not None
        states["given up" if trial.report.given_up else "failed" if trial.report.failure else "done"] += 1
    assert min(states.values()) > 0, "the example shows all of them"
    assert undisturbed.best is not None
    assert undisturbed.best == best_of(undisturbed.trials)
    assert undisturbed.best.number > 0
    assert undisturbed.confirmed is not None
    assert undisturbed.confirmed.shown


@pytest.mark.parametrize("seed", [1, 2])
def test_trials_are_the_same_in_whatever_order_they_end(undisturbed: StudyOutcome, tmp_path: Path, seed: int) -> None:
    again = run(tmp_path, seed=seed)
    assert facts(again.trials) == facts(undisturbed.trials)
    assert again.confirmed == undisturbed.confirmed


def test_more_trials_later_are_the_same_as_all_at_once(undisturbed: StudyOutcome, tmp_path: Path) -> None:
    for trials in (1, 6, 11):
        assert len(run(tmp_path, trials).trials) == trials
    assert facts(run(tmp_path).trials) == facts(undisturbed.trials)
    assert facts(run(tmp_path, 3).trials) == facts(undisturbed.trials), "fewer than there are change nothing"


class Killed(BaseException):
    """The program is no more."""


@pytest.mark.heavy
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_study_that_is_killed_at_any_write_goes_on_as_if_it_had_not_been(
    undisturbed: StudyOutcome, tmp_path: Path, monkeypatch, after: bool
) -> None:
    """Every write of a run is the last one of some process: the next one begins with what is there."""
    from optuna.storages import RDBStorage

    writes = (
        "create_new_trial",
        "set_trial_intermediate_value",
        "set_trial_user_attr",
        "set_trial_state_values",
        "set_study_user_attr",
    )
    left = 0

    def dying(name: str) -> object:
        write = getattr(RDBStorage, name)

        def killed(storage: RDBStorage, *values: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0 and not after:
                raise Killed
            done = write(storage, *values, **named)
            if left < 0:
                raise Killed
            return done

        return killed

    for name in writes:
        monkeypatch.setattr(RDBStorage, name, dying(name))
    kills, begun, outcome = 0, 0, None
    while outcome is None:
        # A process that writes three times before it is killed, or five, or seven: trial by trial it gets on.
        left = (3, 5, 7)[kills % 3]
        engine = FakeEngine(seed=kills)
        with suppress(Killed), closing(opened(tmp_path)) as study:
            outcome = tune(plan(), study, engine, TRIALS)
        begun += engine.begun
        kills += outcome is None
    assert kills >= 10
    assert begun > TRIALS + 2 * CONFIRMING_SEEDS, "what was under way was begun anew"
    assert facts(outcome.trials) == facts(undisturbed.trials)
    assert outcome.confirmed == undisturbed.confirmed


def test_no_batch_is_begun_once_time_is_over_and_the_study_goes_on_later(
    undisturbed: StudyOutcome, tmp_path: Path
) -> None:
    now = 0.0
    is_over = deadline(10.0, lambda: now)
    with closing(opened(tmp_path)) as study:

        def later(_: object) -> None:
            nonlocal now
            now += 4.0

        first = tune(plan(), study, FakeEngine(), TRIALS, is_over=is_over, on_trial=later)
    assert len(first.trials) == 4
    assert first.confirmed is None
    assert facts(run(tmp_path).trials) == facts(undisturbed.trials)


def test_without_a_better_trial_nothing_is_trained_anew(tmp_path: Path) -> None:
    with closing(StudyFile(tmp_path, SPACE, {})) as study:
        engine = FakeEngine()
        outcome = tune(replace(plan(), batch=1), study, engine, 1)
    assert (outcome.best, outcome.confirmed, engine.begun) == (outcome.trials[0], None, 1)
