"""Training of a `set` policy: by evolution in simulation, or by replays in a twin.

Evolution: three sets of worlds, by number, must not overlap: those whose observed speeds become the priors, those that
the residual is evolved on, and those that decide whether it is kept. A residual that does not win there is not
published: the weights stay zero, and the policy is the planner.

Twin: a head learns from replays of windows, as a fleet's learner does. Every update is the gradient of one window
(`learning.twin_gradient`), counted in spreads, held within a trust region of where it began, and averaged. Nobody is
late and nobody lies, so nothing is judged. The same seed gives the same bits. Windows and directions are drawn apart,
so that settings that are compared meet the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PRICES_VERSION, SESSIONS_VERSION, SET, SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic, merged
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.training.evolution import Trial
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.training.settings import SetSettings, SetStart, SetTwinSettings
from policy_net.laboratory.training.twin_windows import TwinWindow, cost_of, part_of
from policy_net.learning.adam import AdamConstants, TrustRegion, adam_step, follow
from policy_net.learning.twin_gradient import twin_gradient
from policy_net.set_policy.policy import SetPolicy, default_set_file, extended, set_spec_of
from policy_net.set_policy.residual import initial_residual
from policy_net.set_policy.spreads import spreads_of

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
    worlds: NumberedWorlds, spec: SetSpec, on_world: Callable[[], None] | None = None
) -> tuple[SpeedStatistic, ...]:
    """What clusters that start from nothing observe of speeds, merged."""
    weights = initial_residual(spec, 0)
    seen: list[SpeedStatistic] = []
    for cluster in range(PRIOR_WORLDS // WORLDS_PER_CLUSTER):
        policy = SetPolicy(spec, weights)
        for position in range(WORLDS_PER_CLUSTER):
            worlds.mean_jct_seconds(cluster * WORLDS_PER_CLUSTER + position, policy)
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
    """Mean log ratio of average JCTs against the planner alone (negative is better), and its standard error."""

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


Windows = Callable[[np.random.Generator], TwinWindow]
"""Draws a workload that may be taught with."""


def begin(settings: SetSettings, seed: int) -> PolicyFile:
    """Policy that is taught where there is none to go on from: shipped speeds, and the structure that is asked for."""
    shipped, wanted = default_set_file(), settings.twin
    groups = [name for name, asked in (("prices", wanted.prices), ("sessions", wanted.sessions)) if asked]
    if wanted.start is SetStart.SET:
        return extended(shipped, SET, groups) if groups else shipped
    spec = SetSpec(
        hidden=settings.hidden,
        prices=PRICES_VERSION if wanted.prices else 0,
        sessions=SESSIONS_VERSION if wanted.sessions else 0,
    )
    return PolicyFile(spec, initial_residual(spec, seed), {}, shipped.priors)


def teach(
    start: PolicyFile,
    windows: Windows,
    settings: SetTwinSettings,
    seed: int,
    *,
    updates: int,
    stop: Callable[[], bool] = lambda: False,
    on_update: Callable[[int, Weights, float], None] | None = None,
    reached: tuple[int, Weights] | None = None,
) -> Weights:
    """The average of the head after so many updates, or fewer if `stop` says so; shape (parameter_count,).

    Args:
        start: a `set` policy; its priors are what every replay begins with.
        on_update: gets how many updates are done, the average, and the root mean square of half the log ratios of the
            update's pairs.
        reached: of a teaching that was interrupted, how many updates were done, and the average then; it goes on on
            other draws.
    """
    spec = set_spec_of(start, "what is taught")
    spreads = spreads_of(spec)
    region = TrustRegion.around(start.weights, settings.trust_radius, spreads)
    before, begun = (0, start.weights) if reached is None else reached
    weights = begun.astype(np.float32)
    average = weights.copy()
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    drawn_on = (before,) if before else ()
    drawing, directing = (np.random.default_rng((seed, stream, *drawn_on)) for stream in range(2))
    for done in range(before, updates):
        if stop():
            break
        window = part_of(windows(drawing), settings.window_jobs, settings.speed_spread, drawing)
        cost = cost_of(window, spec, start.priors)
        found = twin_gradient(weights.copy(), spreads, cost, settings.gradient, directing)
        rate = settings.learning_rate / (1.0 + done / (settings.decay_share * updates))
        adam_step(weights, first, second, done + 1 - before, found.gradient, rate, AdamConstants(), spreads)
        if region is not None:
            region.keep_in(weights)
        follow(average, weights, settings.average_decay)
        if on_update is not None:
            on_update(done + 1, average.copy(), found.statistics["difference_rms"])
    return average
