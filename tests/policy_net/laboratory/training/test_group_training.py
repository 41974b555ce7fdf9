"""Training from groups of decisions: it gets better on workloads of its own, keeps the best, and says why it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pydantic import ValidationError

from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.errors import NoProgress
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training import group_training
from policy_net.laboratory.training.group_training import (
    GroupLearner,
    GroupUpdate,
    mean_jct_seconds,
    train_in_groups,
    window_gradient,
)
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.gradient import NotEnoughSamples
from policy_net.learning.settings import GroupSettings

SPEC = PolicySpec(jobs_per_batch=6, job_types=("other", "vgg-16", "resnet-50"), hidden=(24,))
FEW = GroupSettings(draws=6, every_decisions=3, micro_actions=400, batch_samples=128, learning_rate=0.01)


def episodes(seed: int = 0) -> Iterator[Episode]:
    for number in range(seed, 1_000_000):
        yield load_workload(f"dl2:jobs=8,mix=vgg-16+resnet-50,seed={number}"), Environment(nodes=3, seed=number)


def learner_of(settings: GroupSettings = FEW, seed: int = 1, first: int = 0) -> GroupLearner:
    return GroupLearner(SPEC, initial_weights(SPEC, seed), episodes(first), default_speeds(), settings, seed)


def test_a_network_that_knows_nothing_learns_what_jobs_gain_by() -> None:
    learner = learner_of()
    before = learner.weights.copy()
    apart = [episode for _, episode in zip(range(6), episodes(500_000), strict=False)]
    met = [learner.update(number / 30) for number in range(30)]
    costs = [
        mean_jct_seconds(LearnedPolicy(SPEC, weights), apart, default_speeds()) for weights in (before, learner.weights)
    ]
    assert costs[1] < 0.8 * costs[0]
    assert np.mean([one.utility for one in met[-5:]]) > np.mean([one.utility for one in met[:5]])
    assert met[-1].entropy < met[0].entropy


def test_the_same_seed_learns_the_same() -> None:
    first, again, other = learner_of(), learner_of(), learner_of(first=70)
    for learner in (first, again, other):
        learner.update(0.0)
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, other.weights)


class Scripted:
    """In the place of a learner: its weights are the number of updates so far."""

    def __init__(self) -> None:
        self.weights = np.zeros(1, np.float32)
        self.shares: list[float] = []

    def update(self, share: float, stop: Callable[[], bool]) -> GroupUpdate:
        del stop
        self.shares.append(share)
        self.weights = self.weights + np.float32(1.0)
        return GroupUpdate(0.5, 1.0)


def test_the_weights_that_validate_best_are_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_training, "VALIDATIONS", 4)
    learner, validated = Scripted(), []

    def cost(weights: Weights) -> float:
        return abs(float(weights[0]) - 4.0)

    weights, best = train_in_groups(
        learner,  # type: ignore[arg-type]  # what it needs of one
        cost,
        steps=8,
        on_validated=lambda done, cost: validated.append((done, cost)),
    )
    assert validated == [(2, 2.0), (4, 0.0), (6, 2.0), (8, 4.0)]
    assert (float(weights[0]), best) == (4.0, 0.0)
    assert learner.shares == [number / 8 for number in range(8)]


def test_a_training_that_is_stopped_is_validated_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_training, "VALIDATIONS", 2)
    learner, steps = Scripted(), []
    weights, best = train_in_groups(
        learner,  # type: ignore[arg-type]  # as above
        lambda weights: 9.0 - float(weights[0]),
        steps=10,
        before=3,
        stop=lambda: len(steps) == 3,
        on_step=lambda done, _weights, _met: steps.append(done),
    )
    assert steps == [4, 5, 6]
    assert (float(weights[0]), best) == (3.0, 6.0)


def test_where_no_policy_comes_to_an_end_the_newest_weights_are_the_result() -> None:
    weights, cost = train_in_groups(Scripted(), lambda _: math.inf, steps=3)  # type: ignore[arg-type]  # as above
    assert (float(weights[0]), cost) == (3.0, math.inf)


def test_a_training_that_goes_on_keeps_what_it_goes_on_from_where_that_is_better() -> None:
    learner = Scripted()
    weights, cost = train_in_groups(learner, lambda weights: float(weights[0]), steps=4, before=2)  # type: ignore[arg-type]
    assert (float(weights[0]), cost) == (0.0, 0.0)
    weights, cost = train_in_groups(learner, lambda _: 7.0, steps=4, before=4)  # type: ignore[arg-type]
    assert cost == 7.0, "nothing is left to do, and it is validated all the same"


def test_a_replay_of_many_jobs_has_no_more_groups_than_one_of_few() -> None:
    crowd = load_workload("dl2:jobs=240,mix=vgg-16+resnet-50,seed=3"), Environment(nodes=3)
    groups = []
    for workload in (crowd, next(episodes())):
        learner = GroupLearner(SPEC, initial_weights(SPEC, 1), iter([workload] * 9), default_speeds(), FEW, 1)
        learner.update(0.0)
        groups.append(len(learner.policy.groups))
    assert groups[0] < 40 * groups[1]


def test_an_update_of_more_windows_replays_as_many() -> None:
    settings = FEW.model_copy(update={"micro_actions": 1})
    drawn = []
    for windows in (1, 3):
        learner = learner_of(settings.model_copy(update={"windows": windows}))
        learner.update(0.0)
        drawn.append(learner.policy.drawn)
    assert drawn[1] > 2 * drawn[0]


def test_a_learning_rate_of_nothing_leaves_the_weights_and_another_falls_to_a_tenth() -> None:
    still = learner_of(FEW.model_copy(update={"learning_rate": 0.0}))
    still.update(1.0)
    assert np.array_equal(still.weights, initial_weights(SPEC, 1))
    first, last = learner_of(), learner_of()
    first.update(0.0)
    last.update(1.0)
    start = initial_weights(SPEC, 1)
    assert np.abs(last.weights - start).max() < 0.5 * np.abs(first.weights - start).max()


def test_a_window_gives_as_much_as_was_asked_for_in_the_reference_too(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, environment = load_workload("dl2:jobs=40,mix=vgg-16+resnet-50,seed=3"), Environment(nodes=3)
    window, head = TwinWindow(workload, environment, default_speeds()), PolicyFile(SPEC, initial_weights(SPEC, 1))
    compiled = window_gradient(head, window, FEW, np.random.default_rng(2))
    assert FEW.micro_actions <= compiled.samples < 2 * FEW.micro_actions
    monkeypatch.setattr("policy_net.laboratory.simulation.replay.notice", lambda: "no library")
    reference = window_gradient(head, window, FEW, np.random.default_rng(2))
    assert reference.samples == compiled.samples
    assert reference.gradient == pytest.approx(compiled.gradient, abs=1e-4)


def test_weights_that_become_infinite_are_an_error() -> None:
    learner = Scripted()
    learner.weights = np.full(1, np.inf, np.float32)
    with pytest.raises(FloatingPointError, match="the weights became infinite"):
        train_in_groups(learner, lambda _: 0.0, steps=1)  # type: ignore[arg-type]  # as above


def test_workloads_without_any_choice_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_training, "MOST_EMPTY_REPLAYS", 3)
    monkeypatch.setattr(group_training, "replay", lambda *_, **__: None)
    with pytest.raises(NotEnoughSamples, match="3 replays without any choice"):
        learner_of().update(0.0)


def test_a_policy_that_never_comes_to_an_end_costs_infinitely_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def standstill(*_: object, **__: object) -> None:
        raise NoProgress("nobody trains")

    monkeypatch.setattr(group_training, "replay", standstill)
    policy = LearnedPolicy(SPEC, initial_weights(SPEC, 0))
    assert mean_jct_seconds(policy, [next(episodes())], default_speeds()) == math.inf


def test_of_one_draw_there_is_nothing_to_compare_and_settings_refuse_it() -> None:
    workload, environment = next(episodes())
    window = TwinWindow(workload, environment, default_speeds())
    head = PolicyFile(SPEC, initial_weights(SPEC, 0))
    found = window_gradient(head, window, FEW.model_copy(update={"draws": 1}), np.random.default_rng(0))
    assert not found.gradient.any(), "zero, and no number amid it that is none"
    with pytest.raises(ValidationError, match="draws"):
        GroupSettings(draws=1)
