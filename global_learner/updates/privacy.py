"""Privacy of clusters: an update gets its bound and its noise when it is taken, before it is logged or applied.

So what is on disk, in the head and in every version is noised already, and all that follows (Adam, cohorts, robust
votes, the trust region, averages, usual norms) costs no more privacy. Noise is drawn once, with a seed that is kept
nowhere: a replay takes the noised gradient from the log. An update that a crash takes away before it is durable was
told to nobody; the cluster offers it again, and it gets other noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import structlog

from global_learner.aggregation.settings import AggregationSettings, PrivacyMode, PrivacySettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings, LearnerSettings
from global_learner.updates.ledger import Ledger, NoiseSpent
from policy_net.exchange.wire import GradientUpdate
from policy_net.privacy.mechanism import GaussianNoise, fresh_seed
from policy_net.privacy.settings import declared_noise, epsilon

_log = structlog.get_logger()


class Protection:
    """What privacy does with updates, on one event loop; `seed` tells the seed of each update's noise."""

    def __init__(self, settings: PrivacySettings, seed: Callable[[], int] = fresh_seed) -> None:
        self._settings = settings
        self._noise = GaussianNoise(settings.clip_norm, settings.noise_multiplier, seed)
        self._reported: set[str] = set()

    def admit(self, update: GradientUpdate, ledger: Ledger) -> None:
        """See that one more update of the cluster may be taken.

        Raises:
            UpdateRejected: its budget is spent, or it comes without the noise that it should have.
        """
        settings = self._settings
        if settings.mode is PrivacyMode.LOCAL and not declared_noise(update.statistics).covers(settings):
            raise UpdateRejected(
                Rejection.NOT_NOISED,
                f"the gradient is said to have no noise, or less than clip_norm {settings.clip_norm:g} and "
                f"noise_multiplier {settings.noise_multiplier:g}: set these in the section privacy of the agent",
            )
        record = ledger.clusters.get(update.cluster)
        if record is None or settings.allows(record.noise_spent):
            return
        cost = epsilon(record.noise_spent, settings.delta)
        text = (
            f"cluster {update.cluster} has spent its privacy: epsilon {cost:.4g} of {settings.target_epsilon:g} at "
            f"delta {settings.delta:g} in {record.noised} updates; it acts on, and nothing more is learned from it "
            "(privacy.target_epsilon)"
        )
        if update.cluster not in self._reported:
            self._reported.add(update.cluster)
            _log.warning("privacy-spent", cluster=update.cluster, reason=text)
        raise UpdateRejected(Rejection.PRIVACY_SPENT, text)

    @property
    def noise_multiplier(self) -> float:
        """Multiplier of the noise that is in each update."""
        return self._settings.noise_multiplier

    def on(self, update: GradientUpdate) -> GradientUpdate:
        """An update that is to be logged and applied: noised, unless its cluster did that, and counted as one sample.

        How many samples it was made from is the cluster's own secret too, and would tell through the length of steps.
        """
        gradient = update.gradient if self._settings.mode is PrivacyMode.LOCAL else self._noise.on(update.gradient)
        return dataclasses.replace(update, gradient=gradient, samples=1, effective_samples=1.0, statistics={})


def judged(settings: LearnerSettings) -> IngestSettings:
    """The rules of updates: where the learner clips for privacy, no other rule may ask how long a gradient is."""
    if settings.privacy is None or settings.privacy.mode is not PrivacyMode.CENTRAL:
        return settings.ingest
    return settings.ingest.model_copy(update={"max_gradient_norm": math.inf, "clip_factor": 0.0})


def weighed(settings: LearnerSettings) -> AggregationSettings:
    """How steps weigh: with privacy all alike, as the number of samples would tell of its cluster."""
    if settings.privacy is None:
        return settings.aggregation
    return settings.aggregation.model_copy(update={"largest_sample_weight": 0.0})


def statement(settings: PrivacySettings | None, spent: NoiseSpent) -> dict[str, Any]:
    """What a version's card says of privacy; nothing where there is none."""
    if settings is None:
        return {}
    return {
        "mode": settings.mode.value,
        "epsilon": round(epsilon(spent.spent, settings.delta), 6),
        "delta": settings.delta,
        "clip_norm": settings.clip_norm,
        "noise_multiplier": settings.noise_multiplier,
        "updates_of_one_cluster": spent.updates,
        "unprotected_updates": spent.unprotected,
        "target_epsilon": settings.target_epsilon or 0.0,
        "sampling": "none",
    }
