"""Five simulated clusters and the learner's own core, in one process and in turn: exactly repeatable.

Their updates go through the learner's checks, its aggregator and its head. Only the network and
the disk are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.robustness.teaching import ImitatingCluster
from benchmarks.robustness.worlds import BAD, MIXES
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.updates.simulated_fleet import SimulatedHead
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights

AVERAGE_DECAY = 0.99
"""As the fleet publishes: the average of the head's last hundred steps."""
Attack = Callable[[Weights], Weights]
"""What a bad cluster sends in place of its gradient; each passes every check that looks at one update alone."""


def _times(factor: float, gradient: Weights) -> Weights:
    return gradient * np.float32(factor)


_FACTORS = {"none": 1.0, "flipped": -1.0, "hundredfold": 100.0, "hundredfold-flipped": -100.0}
ATTACKS: Mapping[str, Attack] = MappingProxyType({name: partial(_times, factor) for name, factor in _FACTORS.items()})
"""By name; `none` is the clean run that the others are compared with."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """How the learner treats updates.

    Attributes:
        aggregation: the section of its settings.
        optimizer: likewise.
        max_gradient_norm: what it rejects beyond; its default unless given.
    """

    aggregation: Mapping[str, Any]
    optimizer: Mapping[str, float]
    max_gradient_norm: float | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run ended with; `rejected` is by cluster."""

    weights: Weights
    updates: int
    rejected: Counter[str] = field(default_factory=Counter)


def run_fleet(
    start: PolicyFile,
    treatment: Treatment,
    attack: Attack,
    seed: int,
    rounds: int,
    on_round: Callable[[int], None] = lambda _round: None,
) -> RunResult:
    """Let every cluster push `rounds` times, in turn; a gradient's base is the head that it was computed at."""
    limit = treatment.max_gradient_norm
    learner = SimulatedHead(
        start,
        OptimizerSettings.model_validate(dict(treatment.optimizer)),
        AggregationSettings.model_validate(dict(treatment.aggregation)),
        IngestSettings() if limit is None else IngestSettings(max_gradient_norm=limit),
        AVERAGE_DECAY,
    )
    clusters = {
        name: ImitatingCluster(name, start, 100_000 * (seed + 31) + 10_000 * place) for place, name in enumerate(MIXES)
    }
    rejected: Counter[str] = Counter()
    for number in range(1, rounds + 1):
        for name, cluster in clusters.items():
            result = cluster.next_gradient(learner.head.weights)
            if name == BAD:
                result = replace(result, gradient=attack(result.gradient))
            try:
                learner.offer(name, learner.head.step, result)
            except UpdateRejected:
                rejected[name] += 1
        on_round(number)
    return RunResult(learner.head.publishable.copy(), learner.head.step, rejected)
