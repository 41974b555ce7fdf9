"""Actor-critic in one process: a simulated cluster, one learner, no network between them; and its endless episodes.

The same policy, reward, replay and gradient as in the fleet. Episodes are the same sources again and again, each time
drawn with another seed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.domain import ClusterState, PlacementEffect, Progress, RewardKind, SpeedModel
from policy_net.errors import NoProgress
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.training.settings import Dl2Settings
from policy_net.laboratory.workloads.workload import Workload
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.reward import SlotUtility, paper_reward, progress_shares, slot_utility
from policy_net.throughput.parametric import OnlineFit

Episode = tuple[Workload, Environment]

FAILURES: Mapping[type[Exception], str] = MappingProxyType(
    {
        FloatingPointError: "the weights became infinite",
        NoProgress: "it keeps jobs from training",
        NotEnoughSamples: "it found nothing to learn from",
    }
)
"""What may become of a training by its settings alone, in words."""
TRIES_AN_UPDATE, MOST_TRIES = 50, 5_000
"""A training that looks for something to learn from so much oftener than it finds any has got stuck."""
SEED_IN_SOURCE = re.compile(r"(?<=[:,])seed=(\d+)")


def source_of_episode(source: str, round_number: int) -> str:
    """The source with its own seed moved on by `round_number`; sources without one are returned as they are."""
    return SEED_IN_SOURCE.sub(lambda found: f"seed={int(found[1]) + round_number}", source)


def endless_episodes(sources: Sequence[str], load: Callable[[str, int], Episode]) -> Iterator[Episode]:
    """Cycle through the sources for ever.

    Args:
        load: makes an episode of a source and a round number, which moves whatever seed is not part of the source.
    """
    round_number = 0
    while True:
        for source in sources:
            yield load(source_of_episode(source, round_number), round_number)
        round_number += 1


def until_stuck(updates: int) -> Callable[[], bool]:
    """A `stop` for `train_offline` of so many updates that raises NotEnoughSamples where they would never come."""
    tries = itertools.count(1)

    def stop() -> bool:
        if next(tries) > MOST_TRIES + TRIES_AN_UPDATE * updates:
            raise NotEnoughSamples(FAILURES[NotEnoughSamples])
        return False

    return stop


def check_finite(weights: Weights) -> None:
    """Raise FloatingPointError unless all weights are finite."""
    if not np.isfinite(weights).all():
        raise FloatingPointError(FAILURES[FloatingPointError])


class SimulatedLearner:
    """A simulated cluster that learns from rewards: weights in, a decision, its outcome, and a gradient out."""

    def __init__(
        self,
        spec: PolicySpec,
        episodes: Iterator[Episode],
        speeds: SpeedModel,
        settings: Dl2Settings,
        seed: int,
        placement_effect: PlacementEffect | None = None,
    ) -> None:
        from policy_net.learning.actor_critic import GradientComputer  # noqa: PLC0415  (brings torch)

        self._actor_critic = settings.actor_critic
        self._gradients = GradientComputer(spec, settings.actor_critic, seed)
        self._replay = ExperienceReplay(settings.replay_samples, seed)
        self._policy = LearnedPolicy(
            spec,
            np.zeros(spec.parameter_count, dtype=np.float32),
            seed=seed,
            mode=ActingMode.SAMPLE,
            explorer=JobAwareExploration(settings.exploration),
        )
        self._beliefs = OnlineFit()
        self.last_reward = 0.0
        self._lives = self._live(episodes, speeds, placement_effect)

    def next_gradient(self, head: Weights) -> GradientResult | None:
        """Live through one decision, acting on the head; None while there is too little experience."""
        self._policy.load_weights(head)
        experience = next(self._lives)
        self.last_reward = experience.reward
        self._replay.add(experience)
        settings = self._actor_critic
        segments = self._replay.draw(settings.replay, settings.segments, settings.segment_decisions)
        try:
            result = self._gradients.gradient(head, segments)
        except NotEnoughSamples:
            return None
        self._replay.revalue(segments, result.surprises)
        return result

    def _live(
        self, episodes: Iterator[Episode], speeds: SpeedModel, placement_effect: PlacementEffect | None
    ) -> Iterator[Experience]:
        for workload, environment in episodes:
            simulation = Simulation(workload, environment, speeds, placement_effect)
            while not simulation.finished:
                state, trigger = simulation.observe()
                decision, samples = self._policy.decide_recorded(state, trigger)
                progress = simulation.apply(decision)
                seconds = simulation.time_seconds - state.time_seconds
                self._beliefs.introduce(state.jobs)
                utility = self._utility(state, progress, seconds)
                self._beliefs.observe(progress)
                reward = paper_reward(state, progress) if utility is None else utility.reward
                yield Experience(samples, reward, seconds, utility=utility, began_seconds=state.time_seconds)

    def _utility(self, state: ClusterState, progress: Sequence[Progress], seconds: float) -> SlotUtility | None:
        """Which job contributed what; None where the reward is the sum alone."""
        if self._actor_critic.reward is RewardKind.PAPER:
            return None
        if self._actor_critic.reward is RewardKind.OWN_JOB:
            return progress_shares(state, progress)
        return slot_utility(state, progress, self._beliefs, seconds)


def train_offline(
    start: Weights,
    spec: PolicySpec,
    episodes: Iterator[Episode],
    speeds: SpeedModel,
    settings: Dl2Settings,
    seed: int,
    *,
    steps: int,
    placement_effect: PlacementEffect | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Weights], None] | None = None,
    on_reward: Callable[[int, float], None] | None = None,
) -> Weights:
    """Take `steps` updates, one a decision time; episodes follow one another. `stop` may end it early.

    Args:
        on_step: gets how many updates are done, and the weights after the last.
        on_reward: gets how many updates are done, and the reward of the decision before the last.
    """
    import torch  # noqa: PLC0415  (two thirds of every program's start, and few of them train)

    flat = torch.from_numpy(np.array(start, dtype=np.float32))
    optimizer = torch.optim.Adam([flat], lr=settings.learning_rate, fused=True)
    learner = SimulatedLearner(spec, episodes, speeds, settings, seed, placement_effect)
    done = 0
    while done < steps and not stop():
        result = learner.next_gradient(flat.numpy())
        if result is None:
            continue
        flat.grad = torch.from_numpy(result.gradient)
        optimizer.step()
        done += 1
        if on_reward is not None:
            on_reward(done, learner.last_reward)
        if on_step is not None:
            on_step(done, flat.numpy())
    return flat.numpy().copy()
