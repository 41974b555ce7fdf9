"""Training of a `set` policy in simulation: what speeds are, then how to tilt the planner, then whether that pays.

Three sets of worlds, by number, must not overlap: those whose observed speeds become the priors, those that the
residual is evolved on, and those that decide whether it is kept. A residual that does not win there is not published:
the weights stay zero, and the policy is the planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic, merged
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.training.evolution import Trial
from policy_net.laboratory.training.offline import Episode
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.residual import initial_residual

PRIOR_WORLDS = 48
"""Workloads whose speeds become the priors; they are met in runs of six, as by clusters that start from nothing."""
WORLDS_PER_CLUSTER = 6
MOST_COUNT = 64
"""A prior's statistic counts as at most so many observations: 3% of error, which is what clusters differ by anyway."""

VALIDATION_WORLDS = 24
FIRST_VALIDATION_WORLD = 9_000_000
"""Seeds below are for training, those from here to 9,500,000 validate, those beyond judge; see docs/evaluation.md."""


@dataclass(frozen=True)
class NumberedWorlds:
    """Numbered worlds; `episode` must give the same world for the same number."""

    episode: Callable[[int], Episode]
    speeds: SpeedModel
    placement_effect: PlacementEffect | None = None

    def mean_jct_seconds(self, number: int, policy: SetPolicy) -> float:
        """Average JCT of a world under a policy, whose beliefs go on from it."""
        workload, environment = self.episode(number)
        result = replay(workload, environment, policy, self.speeds, placement_effect=self.placement_effect)
        return float(result.to_json()["avg_jct_seconds"])


def learn_priors(
    worlds: NumberedWorlds, spec: SetSpec, first_world: int = 0, on_world: Callable[[], None] | None = None
) -> tuple[SpeedStatistic, ...]:
    """What clusters that start from nothing observe of speeds, merged."""
    weights = initial_residual(spec, 0)
    seen: list[SpeedStatistic] = []
    for cluster in range(PRIOR_WORLDS // WORLDS_PER_CLUSTER):
        policy = SetPolicy(spec, weights)
        for position in range(WORLDS_PER_CLUSTER):
            worlds.mean_jct_seconds(first_world + cluster * WORLDS_PER_CLUSTER + position, policy)
            if on_world is not None:
                on_world()
        assert policy.beliefs is not None  # noqa: S101  (given no speeds, it has beliefs; narrows the type)
        seen += policy.beliefs.statistics()
    return merged(seen, most_count=MOST_COUNT)


def log_losses(
    worlds: NumberedWorlds, spec: SetSpec, priors: Sequence[SpeedStatistic], first_world: int
) -> Callable[[Sequence[Trial]], list[float]]:
    """What evolution climbs down: the log of the average JCT, so that every world counts alike."""

    def measure(trials: Sequence[Trial]) -> list[float]:
        return [
            math.log(worlds.mean_jct_seconds(first_world + number, SetPolicy(spec, weights, priors)))
            for weights, number in trials
        ]

    return measure


@dataclass(frozen=True, slots=True)
class ResidualVerdict:
    """How a residual did against the planner alone, over the validation worlds.

    Attributes:
        change: mean log ratio of average JCTs; negative is better.
        standard_error: of it, over worlds.
    """

    change: float
    standard_error: float

    @classmethod
    def over(cls, changes: Sequence[float]) -> ResidualVerdict:
        """The verdict on the log ratios of some worlds."""
        error = float(np.std(changes, ddof=1) / math.sqrt(len(changes))) if len(changes) > 1 else math.inf
        return cls(float(np.mean(changes)), error)

    @property
    def publish(self) -> bool:
        """Whether it wins by more than one standard error."""
        return self.change + self.standard_error < 0.0


def changes_against(
    worlds: NumberedWorlds,
    spec: SetSpec,
    priors: Sequence[SpeedStatistic],
    weights: Weights,
    base: Weights,
    numbers: Sequence[int],
    on_world: Callable[[], None] | None = None,
) -> list[float]:
    """Log ratios of the average JCTs under weights to those under `base`, world by world."""
    changes = []
    for number in numbers:
        tilted = worlds.mean_jct_seconds(number, SetPolicy(spec, weights, priors))
        changes.append(math.log(tilted / worlds.mean_jct_seconds(number, SetPolicy(spec, base, priors))))
        if on_world is not None:
            on_world()
    return changes
