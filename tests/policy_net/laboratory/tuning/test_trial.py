from dataclasses import replace

import pytest

from policy_net.laboratory.commands.tune import OptionsLoader
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.training import offline
from policy_net.laboratory.tuning import trial
from policy_net.laboratory.tuning.space import space_of
from policy_net.laboratory.tuning.trial import JOBS_A_STEP, Budget, TrialTask, run_trial, rung_steps, twin_updates
from policy_net.laboratory.tuning.worlds import TuningWorlds, WorldPart

WORLDS = TuningWorlds(OptionsLoader(WorldOptions(nodes=2)), ("dl2:jobs=4",), {})
DL2 = space_of("dl2", imitation_steps=2)
SMALL = DL2.defaults | {"neurons": 32, "layers": 1}
TASK = TrialTask(WORLDS, DL2, Budget(4, 2, 2), SMALL, seed=3, part=WorldPart.CHOOSING)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MICRO_STATES", 200)
    monkeypatch.setattr(trial, "DEMONSTRATED_EPISODES", 1)
    for name in ("PRIOR_WORLDS", "WORLDS_PER_CLUSTER"):
        monkeypatch.setattr(f"policy_net.laboratory.training.set_training.{name}", 1)


def test_a_trial_is_scored_at_every_rung_and_comes_to_the_same_bits_again() -> None:
    report = run_trial(TASK)
    assert (len(report.scores), len(report.by_world), report.failure, report.given_up) == (2, 2, None, False)
    assert report.scores[-1] == pytest.approx(sum(report.by_world) / 2)
    trial._last.clear()
    assert run_trial(TASK) == report
    assert run_trial(replace(TASK, seed=4)) != report
    assert run_trial(replace(TASK, part=WorldPart.JUDGING)).by_world != report.by_world


TAUGHT = space_of("set")
FEW = TAUGHT.defaults | {"pairs": 2, "learning_rate": 1.5}
TEACHING = replace(TASK, space=TAUGHT, budget=Budget(2, 2, 2), values=FEW)


@pytest.fixture
def _few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.tuning.trial.JOBS_A_STEP", 800)


@pytest.mark.usefixtures("_few_jobs")
def test_a_set_policy_that_is_taught_in_a_twin_comes_to_the_same_bits_again() -> None:
    report = run_trial(TEACHING)
    assert (len(report.scores), report.failure) == (2, None)
    trial._last.clear()
    assert run_trial(TEACHING) == report
    assert run_trial(replace(TEACHING, seed=4)) != report
    assert run_trial(replace(TEACHING, part=WorldPart.JUDGING)).by_world != report.by_world


@pytest.mark.usefixtures("_few_jobs")
@pytest.mark.parametrize("changed", [{"start": "planner"}, {"start": "planner", "neurons": 8}], ids=str)
def test_every_structure_that_is_searched_can_be_taught(changed: dict[str, object]) -> None:
    report = run_trial(replace(TEACHING, values=FEW | changed))
    assert (len(report.scores), report.failure) == (2, None)


def test_trials_in_a_twin_cost_as_many_replayed_jobs_whatever_their_settings() -> None:
    for pairs, window_jobs in ((4, 500), (1, 100), (32, 1000)):
        settings = TAUGHT.settings(TAUGHT.defaults | {"pairs": pairs, "window_jobs": window_jobs}).set.twin
        replayed = sum(min(window_jobs, jobs) for jobs in (400, 1000)) / 2 * 2 * pairs
        assert twin_updates(40, settings, (400, 1000)) * replayed == pytest.approx(40 * JOBS_A_STEP, rel=0.05)


def test_a_trial_that_is_worse_than_the_median_is_given_up_at_its_first_rung() -> None:
    earlier = ((0.1, 0.1),) * 5
    report = run_trial(replace(TASK, earlier=earlier, can_be_given_up=True))
    assert (len(report.scores), report.given_up) == (1, True)
    assert not run_trial(replace(TASK, earlier=earlier)).given_up


@pytest.mark.parametrize(
    "changed",
    [
        {"imitate": "optimus", "jobs_per_batch": 5},
        {"reward": "paper"},
        {"reward": "own-job", "exploration": 0.5},
    ],
    ids=str,
)
def test_every_technique_of_dl2_is_a_trial(changed: dict[str, object]) -> None:
    report = run_trial(replace(TASK, values=SMALL | changed))
    assert (len(report.scores), report.failure) == (2, None)
    assert report != run_trial(TASK)


def test_settings_under_which_weights_become_infinite_fail_and_say_so() -> None:
    report = run_trial(replace(TASK, values=SMALL | {"learning_rate": 1e15, "layers": 3}))
    assert report.failure == "the weights became infinite"


def test_a_training_that_finds_nothing_to_learn_from_fails_and_does_not_go_on_for_ever(monkeypatch) -> None:
    from policy_net.learning.gradient import NotEnoughSamples

    def nothing(*_: object) -> None:
        raise NotEnoughSamples("too far off")

    monkeypatch.setattr("policy_net.learning.actor_critic.GradientComputer.gradient", nothing)
    monkeypatch.setattr(offline, "MOST_TRIES", 10)
    assert run_trial(TASK).failure == "it found nothing to learn from"


def test_rungs_are_evenly_apart_and_the_last_is_the_end() -> None:
    assert rung_steps(200, 3) == {67, 133, 200}
    assert rung_steps(3, 3) == {1, 2, 3}
