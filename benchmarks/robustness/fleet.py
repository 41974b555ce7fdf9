"""Five simulated clusters and the learner's own core, in one process and in turn: exactly repeatable.

Their updates go through the learner's checks, its aggregator and its head. Only the network and
the disk are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from benchmarks.robustness.attacks import Attack
from benchmarks.robustness.rewarding import RewardedCluster
from benchmarks.robustness.teaching import ImitatingCluster
from benchmarks.robustness.worlds import BAD, MIXES
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest
from global_learner.updates.ledger import Ledger
from global_learner.updates.step_size import StepSize
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.exchange.wire import GradientUpdate
from policy_net.learning.gradient import GradientResult

AVERAGE_DECAY = 0.99
"""As the fleet publishes: the average of the head's last hundred steps."""


class Learning(StrEnum):
    """What the clusters learn from."""

    TEACHER = "teacher"
    REWARDS = "rewards"


class LearningCluster(Protocol):
    """One cluster."""

    def next_gradient(self, head: Weights) -> GradientResult | None:
        """What it would push now; None while there is nothing."""
        ...


_CLUSTERS: Mapping[Learning, Callable[[str, PolicyFile, int], LearningCluster]] = MappingProxyType(
    {Learning.TEACHER: ImitatingCluster, Learning.REWARDS: RewardedCluster}
)


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
    learning: Learning,
    treatment: Treatment,
    attack: Attack,
    seed: int,
    rounds: int,
    on_round: Callable[[int], None] = lambda _round: None,
) -> RunResult:
    """Let every cluster push `rounds` times, in turn; a gradient's base is the head that it was computed at."""
    aggregation = AggregationSettings.model_validate(dict(treatment.aggregation))
    optimizer = OptimizerSettings.model_validate(dict(treatment.optimizer))
    limit = treatment.max_gradient_norm
    ingest = Ingest(start.network_spec, IngestSettings() if limit is None else IngestSettings(max_gradient_norm=limit))
    aggregator = build_aggregator(aggregation, optimizer, start.network_spec)
    sizes = StepSize(optimizer, aggregation)
    head = Head(AdamState.start(start.weights), Ledger(256), aggregator, AVERAGE_DECAY)
    build = _CLUSTERS[learning]
    clusters = {name: build(name, start, 100_000 * (seed + 31) + 10_000 * place) for place, name in enumerate(MIXES)}
    rejected: Counter[str] = Counter()
    for number in range(1, rounds + 1):
        for name, cluster in clusters.items():
            result = cluster.next_gradient(head.weights)
            if result is None:
                continue
            gradient = attack(result.gradient) if name == BAD else result.gradient
            update = _update(name, number, head.step, start.network_spec, gradient, result)
            try:
                judgement = ingest.judge(update, head)
            except UpdateRejected:
                rejected[name] += 1
                continue
            kind = aggregator.kind_of_next(name)
            rate = sizes.learning_rate(kind, head.step, judgement.scale, update.samples, head.ledger.usual_samples)
            head.apply(
                AppliedUpdate(head.step + 1, rate, judgement.active_clusters, 0.0, judgement.update, kind),
                judgement.applied_norm,
            )
        on_round(number)
    return RunResult(head.publishable.copy(), head.step, rejected)


def _update(
    cluster: str, sequence: int, step: int, spec: PolicySpec, gradient: Weights, result: GradientResult
) -> GradientUpdate:
    return GradientUpdate(
        cluster,
        1,
        sequence,
        step,
        spec.digest,
        np.ascontiguousarray(gradient, np.float32),
        result.samples,
        result.effective_samples,
    )
