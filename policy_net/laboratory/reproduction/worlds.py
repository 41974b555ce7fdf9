"""Worlds of a reproduction: which jobs train a policy, which judge it, and at what speeds they train.

Jobs that judge are made of generator seeds that nothing else uses (docs/evaluation.md); those of a training follow from
its seed, and in a fleet from the cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache

from policy_net.domain import SpeedModel
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.reproduction.experiment import Scale, Truth, World
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.estimates import Estimates, with_estimates
from policy_net.laboratory.workloads.generator import GeneratorSettings, generate
from policy_net.throughput.parametric import MeasuredFit, SpeedPoint

FIRST_JUDGING_SEED = 9_800_000
"""Of the generator; from here on."""
FIRST_JUDGING_DRAW = 2_000
"""Of noise and of wrong declarations."""
TRAINING_SEEDS = 9_000_000
DRAW_SEEDS = 1_000
APART = 10_000
"""Generator seeds of one training, and of one of its clusters."""
IMITATED_FROM = 5_000
"""Workloads that are demonstrated come from here on, so that rewards are not learned from the same."""
PROFILED_COUNTS = (1, 2, 4)
"""Parameter servers and workers of the short runs that an analytical model is fitted to."""


def judging(world: World, scale: Scale, number: int) -> Episode:
    """The same workload for the same number, in this world."""
    return _episode(world, scale, FIRST_JUDGING_SEED + number, FIRST_JUDGING_DRAW + number)


def training(
    world: World, scale: Scale, seed: int, first: int = 0, unlocked: tuple[str, ...] = (), cluster: int = 0
) -> Iterator[Episode]:
    """Workloads to learn from, without end.

    Args:
        unlocked: the models that occur; the world's where there are none.
    """
    for number in itertools.count(first):
        of_training = ((seed * 64 + cluster) * APART + number) % TRAINING_SEEDS
        yield _episode(world, scale, of_training, number % DRAW_SEEDS, unlocked)


@cache
def speeds_of(truth: Truth) -> SpeedModel:
    """The speeds at which jobs train."""
    simulated = default_speeds()
    if truth is Truth.SIMULATED:
        return simulated
    points: Mapping[str, list[SpeedPoint]] = {
        name: [
            SpeedPoint(ps, workers, simulated.samples_per_second(name, ps, workers))
            for ps in PROFILED_COUNTS
            for workers in PROFILED_COUNTS
        ]
        for name in MODEL_NAMES
    }
    return MeasuredFit(points, "the analytical model")


def _episode(world: World, scale: Scale, seed: int, draw: int, unlocked: tuple[str, ...] = ()) -> Episode:
    mix = dict.fromkeys(unlocked or world.models or MODEL_NAMES, 1.0)
    workload = generate(GeneratorSettings(jobs=scale.jobs, arrivals=world.arrivals, seed=seed, mix=mix))
    declared = with_estimates(workload, Estimates(epoch_error=world.epoch_error), draw)
    return declared, Environment(nodes=scale.nodes, job_noise=world.job_noise, seed=draw)
