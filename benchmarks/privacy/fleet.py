"""A fleet that teaches under noise, in one process and in turn, through what a learner does with updates.

The learner's budget, checks, noise, step sizes, aggregator and head, and in mode `local` the agent's noise with its
record on disk, are the product's; the network and the update log are left out. Noise has a seed here, so that a run can
be repeated.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from benchmarks.privacy.world import Experience, average_jcts, beginning, teacher
from cluster_agent.learning.noise import UpdateNoise
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings, PrivacyMode, PrivacySettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest, Protection
from global_learner.updates.ledger import Ledger
from policy_net.exchange.spec import Weights
from policy_net.exchange.wire import GradientUpdate
from policy_net.privacy.settings import budget

CLIP_NORM = 0.5
"""About the usual norm of a gradient here."""
DELTA = 1e-5
AVERAGE_DECAY = 0.99


@dataclass(frozen=True, slots=True)
class Treatment:
    """How a fleet learns.

    Attributes:
        epsilon: what each cluster's updates cost together; None without privacy.
        teaches: False is the control: all gradients are nought, and only the noise is left.
    """

    clusters: int
    updates: int
    learning_rate: float
    epsilon: float | None = None
    mode: PrivacyMode = PrivacyMode.CENTRAL
    teaches: bool = True

    def privacy(self) -> PrivacySettings | None:
        """The section that lets each cluster give just so many updates for its budget."""
        if self.epsilon is None:
            return None
        multiplier = (self.updates / budget(self.epsilon, DELTA)) ** 0.5
        return PrivacySettings(
            mode=self.mode,
            clip_norm=CLIP_NORM,
            noise_multiplier=multiplier * (1.0 + 1e-9),
            target_epsilon=self.epsilon,
            delta=DELTA,
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """What a run ended with; `spent_epsilon` is of the cluster that has spent most."""

    weights: Weights
    applied: int
    refused: int
    spent_epsilon: float


def run_fleet(experiences: Sequence[Experience], treatment: Treatment, seed: int) -> Learned:
    """Let each cluster push so many updates, in turn, and one more that its budget no longer allows."""
    _, spec = teacher()
    privacy = treatment.privacy()
    optimizer = OptimizerSettings(learning_rate=treatment.learning_rate)
    aggregation = AggregationSettings()
    if privacy is not None:
        aggregation = aggregation.model_copy(update={"largest_sample_weight": 0.0})
    head = Head(
        AdamState.start(beginning()), Ledger(256), build_aggregator(aggregation, optimizer, spec), AVERAGE_DECAY
    )
    seeds = np.random.default_rng(seed)
    protection = None if privacy is None else Protection(privacy, lambda: int(seeds.integers(2**62)))
    ingest = Ingest(spec, _ingest(privacy), optimizer, aggregation, protection)
    refused = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedl2-privacy-")))
        noises = [_agents_noise(privacy, folder / str(number), seeds) for number in range(treatment.clusters)]
        for number in range(1, treatment.updates + 1 + (privacy is not None)):
            for place in range(treatment.clusters):
                gradient = experiences[place].gradient(spec, head.weights, number)
                if not treatment.teaches:
                    gradient = np.zeros_like(gradient)
                update = GradientUpdate(f"c{place}", 1, number, head.step, spec.digest, gradient, 25, 25.0)
                noise = noises[place]
                if noise is not None and noise.exhausted:
                    refused += 1
                    continue
                try:
                    head.apply(ingest.judge(update if noise is None else noise.on(update), head))
                except UpdateRejected as rejected:
                    if rejected.reason is not Rejection.PRIVACY_SPENT:
                        raise
                    refused += 1
    spent = head.ledger.noise_spent.statement(privacy)
    return Learned(head.publishable.copy(), head.step, refused, spent.get("epsilon", 0.0))


def judged_run(
    experiences: Sequence[Experience], treatment: Treatment, seed: int
) -> tuple[NDArray[np.float64], int, float]:
    """A run's average JCTs on the workloads that nobody learns from, its applied updates, and the epsilon spent."""
    # That a budget is spent is no news here, and would be said by each cluster.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    learned = run_fleet(experiences, treatment, seed)
    return average_jcts(learned.weights), learned.applied, learned.spent_epsilon


def _ingest(privacy: PrivacySettings | None) -> IngestSettings:
    """As `judged` has it: where the learner clips for privacy, no other rule asks how long a gradient is."""
    if privacy is None or privacy.mode is not PrivacyMode.CENTRAL:
        return IngestSettings()
    return IngestSettings().model_copy(update={"max_gradient_norm": float("inf"), "clip_factor": 0.0})


def _agents_noise(privacy: PrivacySettings | None, folder: Path, seeds: np.random.Generator) -> UpdateNoise | None:
    if privacy is None or privacy.mode is not PrivacyMode.LOCAL:
        return None
    folder.mkdir()
    return UpdateNoise(privacy, folder, lambda: int(seeds.integers(2**62)))
