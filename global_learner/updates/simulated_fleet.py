"""Simulated fleet: clusters that learn together in one process, by the learner's own judging, weighing and applying.

Every round all clusters compute a gradient at the same head, and the gradients are applied one by one, so that the last
of N is N−1 steps old: A3C with clusters at equal pace. Network and disk are left out, and a seed gives the same bits.
Whoever simulates in the laboratory loads this module by its name; the laboratory imports nothing of the learner.
Source: DL2 §6.5.2 (federated training by A3C).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest
from global_learner.updates.ledger import Ledger
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights
from policy_net.exchange.wire import GradientUpdate
from policy_net.learning.adam import TrustRegion
from policy_net.learning.gradient import GradientResult, NotEnoughSamples

_POLLS_AN_UPDATE, _MOST_POLLS = 50, 5_000
"""A fleet that looks for something to learn from so much oftener than it finds any has got stuck."""


class LearningCluster(Protocol):
    """One cluster."""

    def next_gradient(self, head: Weights) -> GradientResult | None:
        """What it would push now; None while there is nothing."""
        ...


class SimulatedHead:
    """The learner's core: what a cluster offers is judged, gets its step size, and is applied to the head."""

    def __init__(
        self,
        start: PolicyFile,
        optimizer: OptimizerSettings,
        aggregation: AggregationSettings,
        ingest: IngestSettings | None = None,
        average_decay: float = 0.0,
        region: TrustRegion | None = None,
    ) -> None:
        self._spec = start.spec
        aggregator = build_aggregator(aggregation, optimizer, self._spec)
        self._ingest = Ingest(self._spec, ingest or IngestSettings(), optimizer, aggregation)
        self.head = Head(AdamState.start(start.weights), Ledger(256), aggregator, average_decay, region)
        self._offered: dict[str, int] = {}

    def offer(self, cluster: str, base_step: int, result: GradientResult) -> None:
        """Apply a cluster's update, whose gradient was computed at the head of `base_step`.

        Raises:
            UpdateRejected: the learner would not apply it.
        """
        head = self.head
        number = self._offered[cluster] = self._offered.get(cluster, 0) + 1
        update = GradientUpdate(
            *(cluster, 1, number, base_step, self._spec.digest),
            *(np.ascontiguousarray(result.gradient, np.float32), result.samples, result.effective_samples),
        )
        head.apply(self._ingest.judge(update, head))


def train_fleet(
    start: PolicyFile,
    learners: Sequence[LearningCluster],
    learning_rate: float,
    updates: int,
    on_step: Callable[[int, Weights], None],
) -> Weights:
    """Let the clusters learn by Adam until the head has taken so many updates, each applied as it comes; its weights.

    Raises:
        FloatingPointError: what the clusters learn from is not finite.
        NotEnoughSamples: the clusters find nothing to learn from, or the learner takes none of it.
    """
    simulated = SimulatedHead(start, OptimizerSettings(learning_rate=learning_rate), AggregationSettings())
    head = simulated.head
    clusters: Mapping[str, LearningCluster] = {f"cluster-{number}": one for number, one in enumerate(learners)}
    refused = 0
    for _ in range(_MOST_POLLS + _POLLS_AN_UPDATE * updates):
        base, weights = head.step, head.weights.copy()
        found = {name: cluster.next_gradient(weights) for name, cluster in clusters.items()}
        for name, result in found.items():
            if result is None or head.step >= updates:
                continue
            try:
                simulated.offer(name, base, result)
            except UpdateRejected:
                refused += 1
                continue
            on_step(head.step, head.weights)
        if head.step >= updates:
            return head.weights.copy()
    raise NotEnoughSamples(
        f"{head.step} of {updates} updates, and {refused} refused: the clusters find nothing to learn from"
    )
