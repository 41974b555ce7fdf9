"""The catalogue is consistent, and says what the paper says."""

import pytest

import policy_net.baselines  # noqa: F401  (registers schedulers)
from policy_net.laboratory.reproduction.dl2 import DL2, EXPERIMENTS, FIGURE_9, GROUPS, TABLE_2, TABLE_2_GROUPS
from policy_net.laboratory.reproduction.experiment import Experiment, PolicyTraining
from policy_net.learning.settings import Baseline, ReplayDraw
from policy_net.policy import policy_names

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


def test_every_figure_is_there_once() -> None:
    names = [f"fig{number}" for number in (9, 10, 11, 12, 15, 16, 17, 18)]
    assert [experiment.name for experiment in EXPERIMENTS] == [
        *names,
        *(f"fig19{panel}" for panel in "abcde"),
        "table2",
        *(f"{name}-groups" for name in ("fig10", "fig17", "fig19e", "table2")),
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_claims_are_about_lines_that_are_there(experiment: Experiment) -> None:
    lines = [(line.label, line.at) for line in experiment.lines]
    assert len(set(lines)) == len(lines)
    for claim in experiment.claims:
        assert claim.of in lines
        assert claim.against is None or claim.against in lines
        assert claim.paper is not None or claim.words
    if experiment.best is not None:
        candidates, best = experiment.best
        assert set(candidates) <= set(lines)
        assert best in candidates


def test_schedulers_are_known_by_name() -> None:
    named = {line.policy for experiment in EXPERIMENTS for line in experiment.lines if isinstance(line.policy, str)}
    assert named == {"drf", "tetris", "optimus", "fifo", "srtf"}
    assert named <= set(policy_names())


def test_the_paper_s_settings_are_the_paper_s() -> None:
    settings = DL2.settings
    assert (settings.hidden, settings.jobs_per_batch, settings.learning_rate) == ((256, 256), 20, 1e-4)
    assert (settings.exploration, settings.replay_samples, settings.imitation.learning_rate) == (0.4, 8192, 0.005)
    critic = settings.actor_critic
    assert (critic.discount, critic.batch_samples, critic.baseline) == (0.9, 256, Baseline.CRITIC)
    assert critic.replay is ReplayDraw.PRIORITISED


@pytest.mark.parametrize(("table", "all_of_it"), [(TABLE_2, DL2), (TABLE_2_GROUPS, GROUPS)])
def test_an_ablation_differs_from_the_whole_in_one_thing(table: Experiment, all_of_it: PolicyTraining) -> None:
    whole = _flat(all_of_it.settings.model_dump(mode="json"))
    for line in table.lines[1:]:
        assert isinstance(line.policy, PolicyTraining)
        changed = _flat(line.policy.settings.model_dump(mode="json"))
        assert len([name for name in whole if whole[name] != changed[name]]) == 1, line.label


def test_the_figures_of_the_text() -> None:
    said = {claim.text: claim.paper for claim in (*FIGURE_9.claims, *TABLE_2.claims) if claim.paper is not None}
    assert said == {
        "DL2 against DRF": -0.441,
        "DL2 against Optimus": -0.175,
        "DL2 against OfflineRL": -0.379,
        "without bundles against all": 0.351,
        "without critic against all": 0.211,
        "without exploration against all": 0.288,
        "without replay against all": 0.396,
        "own job's reward against all": 0.291,
    }


def test_panels_of_figure_19_vary_what_they_say() -> None:
    hidden = [line.policy.settings.hidden for line in BY_NAME["fig19b"].lines]
    assert hidden == [(32,), (64,), (128,), (256,), (512,)]
    assert [len(line.policy.settings.hidden) for line in BY_NAME["fig19c"].lines] == [1, 2, 3, 4]
    assert [line.policy.settings.jobs_per_batch for line in BY_NAME["fig19a"].lines] == [5, 10, 20, 40]
    assert [line.policy.clusters for line in BY_NAME["fig19e"].lines] == [1, 2, 4]


def test_clusters_that_learn_by_groups_give_a_window_each_to_an_update() -> None:
    trainings = [line.policy for line in BY_NAME["fig19e-groups"].lines if line.at == 1.0]
    assert [training.clusters for training in trainings] == [1, 2, 4, 8]
    assert [training.settings.groups.windows for training in trainings] == [1, 2, 4, 8]
    assert {training.teacher for training in trainings} == {None}


def test_starts_of_figure_10_by_groups_are_soft_imitations_and_nothing() -> None:
    trainings = {line.label: line.policy for line in BY_NAME["fig10-groups"].lines if line.label.startswith("from")}
    assert {name: training.teacher for name, training in trainings.items()} == {
        "from nothing": None, "from DRF": "drf", "from FIFO": "fifo", "from SRTF": "srtf",
    }  # fmt: skip
    assert trainings.pop("from nothing") == GROUPS
    for training in trainings.values():
        assert training.settings.groups == GROUPS.settings.groups
        assert training.settings.imitation.softness > DL2.settings.imitation.softness


def _flat(content: dict, prefix: str = "") -> dict:
    found = {}
    for name, value in content.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
