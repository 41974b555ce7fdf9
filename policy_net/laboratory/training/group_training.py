"""Training of a `dl2` network from groups of decisions, in one process.

An update replays workloads with drawn decisions and draws a group in every tenth state along the way; then it takes a
few epochs of steps on them. Speeds are learned on the way, as a cluster's own: the true ones are the simulator's alone.
The weights that do best on workloads of their own are the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from policy_net.dl2.group import DecisionGroup, DrawingPolicy, EnoughDrawn
from policy_net.dl2.policy import GroupChoice
from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.errors import NoProgress
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.simulation.metrics import summarise
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.training.offline import Episode, check_finite
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.group_gradient import LocalSteps, advantages_of
from policy_net.learning.settings import GroupSettings
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

VALIDATIONS = 40
"""Of a whole training: some two minutes of the CPU each in one of 75."""
GROUPS_OF_WINDOW = 8
"""Spread over a replay of a window, at least: every job's arrival is a decision, or nearly."""
MOST_BYTES_OF_WINDOW = 2**26
"""Of what the network saw in the groups of a window, 64 MB: a lesson has 400."""
JOBS_OF_REPLAY = 60
"""Of a replay of more jobs than so, groups are as much further apart."""
MOST_EMPTY_REPLAYS = 1000
"""Replays of an update that drew nothing, after which there is nothing to learn from."""


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """What an update met.

    Attributes:
        utility: mean over the draws of the state's utility, of what every job had alone; from 0 to 1.
        entropy: mean of the policy over its micro-actions, in nats, before the update.
    """

    utility: float
    entropy: float


class GroupLearner:
    """A simulated cluster that draws groups, and a network that learns from them.

    Attributes:
        policy: acts in the replays, and has the groups of the last update.
        weights: as they have become, shape (parameter_count,).
    """

    def __init__(
        self,
        spec: PolicySpec,
        start: Weights,
        episodes: Iterator[Episode],
        speeds: SpeedModel,
        settings: GroupSettings,
        seed: int,
        placement_effect: PlacementEffect | None = None,
    ) -> None:
        self._episodes, self._speeds, self._effect = episodes, speeds, placement_effect
        self._settings = settings
        self._steps = LocalSteps(spec, start, seed)
        choice = GroupChoice(settings.draws, settings.every_decisions, exploration=settings.exploration)
        self.policy = DrawingPolicy(spec, start, choice, seed=seed)
        self._generator = np.random.default_rng(seed)

    @property
    def weights(self) -> Weights:
        """See above."""
        return self._steps.weights

    def update(self, share: float, stop: Callable[[], bool] = lambda: False) -> GroupUpdate:
        """Draw groups and learn from them.

        Args:
            share: of the training that is over, from 0 to 1; credit and rate follow from it.
            stop: whether to make do with what is drawn already.

        Raises:
            NotEnoughSamples: nothing was a choice.
        """
        settings, policy = self._settings, self.policy
        policy.load_weights(self.weights)
        policy.groups = []
        replays = 0
        enough = settings.micro_actions
        while (policy.drawn < enough or replays < settings.windows) and not (policy.drawn and stop()):
            if replays >= MOST_EMPTY_REPLAYS and not policy.drawn:
                break
            replays += 1
            workload, environment = next(self._episodes)
            every = settings.every_decisions * max(1, len(workload.jobs) // JOBS_OF_REPLAY)
            policy.begin(every, int(self._generator.integers(every)))
            with suppress(NoProgress):  # what was drawn until then teaches better
                replay(workload, environment, policy, self._speeds, placement_effect=self._effect)
        _check_choices(policy.groups, f"{replays} replays")
        own_share = settings.own_share if share < settings.own_until else 0.0
        rate = settings.learning_rate * settings.last_rate_share**share
        entropy = self._steps.take(
            advantages_of(policy.groups, own_share),
            epochs=settings.epochs,
            batch_samples=settings.batch_samples,
            learning_rate=rate,
        )
        return GroupUpdate(float(np.mean([group.utility_KN.sum(axis=1).mean() for group in policy.groups])), entropy)


def _check_choices(groups: Sequence[DecisionGroup], where: str) -> None:
    """Raise NotEnoughSamples if all actions were the only ones that were admissible."""
    if not any((group.samples.masks_MA.sum(axis=1) > 1).any() for group in groups):
        raise NotEnoughSamples(f"{where} without any choice")


def groups_of_window(
    head: PolicyFile,
    window: TwinWindow,
    settings: GroupSettings,
    generator: np.random.Generator,
    on_progress: Callable[[float], None] = lambda _: None,
) -> list[DecisionGroup]:
    """Groups that a head draws all over a replay of a window, up to `settings.micro_actions`.

    Args:
        head: of a `dl2` policy, with priors of speeds.

    Raises:
        NotEnoughSamples: nothing was a choice.
    """
    every = max(1, len(window.workload.jobs) // GROUPS_OF_WINDOW)
    choice = GroupChoice(settings.draws, every, int(generator.integers(every)))
    seed, beliefs = int(generator.integers(2**31)), GaussianProcessBeliefs(head.priors)
    spec = head.network_spec
    most = min(settings.micro_actions, MOST_BYTES_OF_WINDOW // (4 * spec.feature_count + spec.action_count))
    policy = DrawingPolicy(spec, head.weights, choice, seed=seed, beliefs=beliefs, most=most)
    with suppress(EnoughDrawn):
        replay(
            *(window.workload, window.environment, policy, window.speeds, on_progress),
            placement_effect=window.placement_effect,
        )
    _check_choices(policy.groups, "a replay")
    return policy.groups


def window_gradient(
    head: PolicyFile,
    window: TwinWindow,
    settings: GroupSettings,
    generator: np.random.Generator,
    on_progress: Callable[[float], None] = lambda _: None,
    *,
    permute: bool = False,
) -> GradientResult:
    """What a few local steps from a head on `groups_of_window` came to: the head less where they end.

    One gradient of so many actions says no more than one of a few hundred, and a head that follows it loses its entropy
    before it has learned anything. So a lesson takes its steps, clipped where they lead away from the head, and the
    learner takes their sum for a gradient.
    Source: Reddi et al. 2021, "Adaptive Federated Optimization" (the difference as a gradient; Adam at the server).

    Args:
        permute: deal the advantages out anew: a control that has nothing to learn from.

    Raises:
        NotEnoughSamples: nothing was a choice.
        FloatingPointError: the head's logits, or the weights after the steps, are not finite.
    """
    groups = groups_of_window(head, window, settings, generator, on_progress)
    batch = advantages_of(groups, settings.own_share)
    if permute:
        batch = replace(batch, advantage_M=generator.permutation(batch.advantage_M))
    steps = LocalSteps(head.network_spec, head.weights, int(generator.integers(2**31)))
    entropy = steps.take(
        batch, epochs=settings.epochs, batch_samples=settings.batch_samples, learning_rate=settings.learning_rate
    )
    check_finite(steps.weights)
    utility = float(np.mean([group.utility_KN.sum(axis=1).mean() for group in groups]))
    statistics = {"utility": utility, "entropy": entropy}
    return GradientResult(head.weights - steps.weights, len(batch), float(len(batch)), statistics)


def mean_jct_seconds(
    policy: SchedulerPolicy,
    episodes: Sequence[Episode],
    speeds: SpeedModel,
    placement_effect: PlacementEffect | None = None,
) -> float:
    """The mean over workloads of their average JCT under a policy; infinite where one never ends."""
    means = []
    for workload, environment in episodes:
        try:
            found = replay(workload, environment, policy, speeds, placement_effect=placement_effect)
        except NoProgress:
            return math.inf
        mean = summarise(found.outcomes).avg_jct_seconds
        assert mean is not None  # noqa: S101  (every job of a replay ends; narrows the type)
        means.append(mean)
    return float(np.mean(means))


def train_in_groups(
    learner: GroupLearner,
    validate: Callable[[Weights], float],
    *,
    steps: int,
    before: int = 0,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Weights, GroupUpdate], None] = lambda _done, _weights, _met: None,
    on_validated: Callable[[int, float], None] = lambda _done, _cost: None,
) -> tuple[Weights, float]:
    """Take updates until there are `steps` in all, or `stop` says so.

    Args:
        validate: what weights cost on workloads of their own; the lowest wins.
        before: updates of an earlier run.
        on_step: gets how many updates are done, the weights after the last, and what it met.
        on_validated: gets how many updates are done, and their cost.

    Returns:
        The weights that validated best, and their cost.
    """
    best = np.array(learner.weights), math.inf
    if before:
        best = _better(best, learner.weights, validate, before, on_validated)
    every = max(1, steps // VALIDATIONS)
    done = before
    while done < steps and not stop():
        met = learner.update(done / steps, stop)
        done += 1
        on_step(done, learner.weights, met)
        if done % every == 0 or done == steps:
            best = _better(best, learner.weights, validate, done, on_validated)
    if done % every and done < steps:  # it was stopped in between
        best = _better(best, learner.weights, validate, done, on_validated)
    return best


def _better(
    best: tuple[Weights, float],
    weights: Weights,
    validate: Callable[[Weights], float],
    done: int,
    on_validated: Callable[[int, float], None],
) -> tuple[Weights, float]:
    check_finite(weights)
    cost = validate(weights)
    on_validated(done, cost)
    return (np.array(weights), cost) if cost <= best[1] else best
