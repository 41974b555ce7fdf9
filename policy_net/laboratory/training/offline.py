"""Actor-critic in one process: a simulated cluster, one learner, no network between them; and its endless episodes.

The same policy, reward, replay and gradient as in the fleet; what the agent and the learner add is that many clusters
do it at once. Episodes are the same sources again and again, each time drawn with another seed. Used by
`policy-net train`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.domain import PlacementEffect, RewardKind, SpeedModel
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.training import OFFLINE_LEARNING_RATE
from policy_net.laboratory.workloads.workload import Workload
from policy_net.learning.gradient import NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.reward import paper_reward, slot_utility
from policy_net.learning.settings import REPLAY_SAMPLES, ActorCriticSettings
from policy_net.throughput.parametric import OnlineFit

Episode = tuple[Workload, Environment]

_SEED_IN_SOURCE = re.compile(r"(?<=[:,])seed=(\d+)")


def source_of_episode(source: str, round_number: int) -> str:
    """The source with its own seed moved on by `round_number`; sources without one are returned as they are."""
    return _SEED_IN_SOURCE.sub(lambda found: f"seed={int(found[1]) + round_number}", source)


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


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """What the fleet's configs say elsewhere: step size, exploration, size of the replay, seed."""

    learning_rate: float = OFFLINE_LEARNING_RATE
    epsilon: float = 0.1
    seed: int = 0
    replay_samples: int = REPLAY_SAMPLES


def train_offline(
    start: Weights,
    spec: PolicySpec,
    episodes: Iterator[Episode],
    speeds: SpeedModel,
    actor_critic: ActorCriticSettings,
    settings: OfflineSettings,
    *,
    steps: int,
    placement_effect: PlacementEffect | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Weights], None] | None = None,
    on_reward: Callable[[int, float], None] | None = None,
) -> Weights:
    """Take `steps` updates, one a decision time; episodes follow one another. `stop` may end it early.

    Args:
        on_step: is told how many updates are done, and the weights after the last.
        on_reward: is told how many updates are done, and the reward of the decision before the last.
    """
    import torch  # noqa: PLC0415  (two thirds of every program's start, and few of them train)

    from policy_net.learning.actor_critic import GradientComputer  # noqa: PLC0415  (as above)

    flat = torch.from_numpy(np.array(start, dtype=np.float32))
    optimizer = torch.optim.Adam([flat], lr=settings.learning_rate, fused=True)
    gradients = GradientComputer(spec, actor_critic, settings.seed)
    replay = ExperienceReplay(settings.replay_samples, settings.seed)
    explorer = JobAwareExploration(settings.epsilon)
    policy = LearnedPolicy(spec, flat.numpy(), seed=settings.seed, mode=ActingMode.SAMPLE, explorer=explorer)
    beliefs = OnlineFit()
    done = 0
    while done < steps and not stop():
        workload, environment = next(episodes)
        simulation = Simulation(workload, environment, speeds, placement_effect)
        while not simulation.finished and done < steps and not stop():
            state, trigger = simulation.observe()
            decision, samples = policy.decide_recorded(state, trigger)
            progress = simulation.apply(decision)
            seconds = simulation.time_seconds - state.time_seconds
            if actor_critic.reward is RewardKind.PAPER:
                experience = Experience(samples, paper_reward(state, progress), seconds)
            else:
                beliefs.introduce(state.jobs)
                utility = slot_utility(state, progress, beliefs, seconds)
                experience = Experience(
                    samples, utility.reward, seconds, utility=utility, began_seconds=state.time_seconds
                )
            beliefs.observe(progress)
            replay.add(experience)
            try:
                result = gradients.gradient(
                    flat.numpy(), replay.segments(actor_critic.segments, actor_critic.segment_decisions)
                )
            except NotEnoughSamples:
                continue
            flat.grad = torch.from_numpy(result.gradient)
            optimizer.step()
            policy.load_weights(flat.numpy())
            done += 1
            if on_reward is not None:
                on_reward(done, experience.reward)
            if on_step is not None:
                on_step(done, flat.numpy())
    return flat.numpy().copy()
