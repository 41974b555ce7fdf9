"""Rules of an update: whether it is applied, from the cheapest check to the one that reads all of it, and how far.

What comes out is the record that applies it; nothing is changed yet. A gradient that is far longer than is usual is
clipped (`UsualNorms`). The step is the learning rate at the head's step, for the update's staleness and its samples:

**Staleness.** The *learning rate* is scaled, not the gradient: Adam divides by the gradient's own size and would cancel
that. With N clusters at equal pace every gradient is N−1 steps old when it arrives; that much is the price of
asynchrony, is what the learning rate was chosen for, and costs nothing here. Only the excess over it shortens the step:
an update that is another round of the fleet late (excess = N) takes half a step, two rounds a third.

Source: Zhang et al. 2016, "Staleness-aware async-SGD" (rate divided by staleness).
Deviation: theirs divides by the absolute staleness, which would shrink every step of a large fleet; and steps since the
base are counted fairly (`LatestSteps`).

**Samples.** A gradient from half as many samples says half as much. Where updates are averaged, their weights say so;
where each one is a step of its own, the *step* has to. An update takes as much of the usual step as it has of the usual
number of samples, up to a limit. What is usual is the median over the active clusters, each by its own running mean, so
that neither the cluster that pushes fastest nor one that lies about its samples sets it; and whatever a cluster claims,
its step is at most `largest` times the usual one.

Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (weights by
samples). Deviation: on the learning rate of single updates, relative to the fleet, and limited.

**Privacy of clusters.** An update gets its bound and its noise when it is taken, before it is logged or applied. So
what is on disk, in the head and in every version is noised already, and all that follows (Adam, cohorts, robust votes,
the trust region, averages, usual norms) costs no more privacy. Noise is drawn once, with a seed that is kept nowhere: a
replay takes the noised gradient from the log. An update that a crash takes away before it is durable was told to
nobody; the cluster offers it again, and it gets other noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection

import numpy as np
import structlog

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings, PrivacyMode, PrivacySettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings, LearnerSettings
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger, gradient_norm
from policy_net.exchange.spec import Weights, WeightSpec
from policy_net.exchange.wire import GradientUpdate
from policy_net.privacy.mechanism import GaussianNoise
from policy_net.privacy.settings import declared_noise, epsilon

_log = structlog.get_logger()

_LARGEST_COUNT = 2**53
"""Counts beyond this are no counts; also keeps them exact in JSON."""


def excess_staleness(staleness: int, active_clusters: int) -> int:
    """Head steps beyond what the other active clusters explain; 0 if there are none."""
    return max(0, staleness - (max(active_clusters, 1) - 1))


def staleness_scale(staleness: int, active_clusters: int) -> float:
    """Factor on the learning rate, in (0, 1]: 1 / (1 + excess / active)."""
    active = max(active_clusters, 1)
    return 1.0 / (1.0 + excess_staleness(staleness, active) / active)


def most_staleness(moves: int, active_clusters: int) -> int:
    """The largest fair staleness of an update since whose base the head moved so often.

    Where every update moves it this is no limit; where a cohort does, all active clusters contributed to one, and an
    update that follows its own cluster's reply at once has the others' parts behind it: one step less.
    """
    return max(moves, moves * active_clusters - 1)


def sample_weight(samples: int, usual: float, largest: float) -> float:
    """Factor on the learning rate: samples over the usual number, at most `largest`; 1 where either of these is 0."""
    if largest == 0.0 or usual <= 0.0:
        return 1.0
    return min(largest, samples / usual)


def clipped(gradient: Weights, norm: float, limit: float) -> Weights:
    """The gradient, shortened to the limit where its norm is above it; otherwise the very same array."""
    return gradient * np.float32(limit / norm) if norm > limit else gradient


class Protection:
    """What privacy does with updates, on one event loop."""

    def __init__(self, settings: PrivacySettings) -> None:
        self._settings = settings
        self._noise = GaussianNoise(settings.clip_norm, settings.noise_multiplier)
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


class Ingest:
    """The rules for one spec.

    Args:
        protection: of clusters' privacy; None: there is none.
        only_replays: whether updates from live experience are refused.
    """

    def __init__(
        self,
        spec: WeightSpec,
        settings: IngestSettings,
        optimizer: OptimizerSettings,
        aggregation: AggregationSettings,
        protection: Protection | None = None,
        *,
        only_replays: bool = False,
    ) -> None:
        self._settings = settings
        self._spec_digest = spec.digest
        self._parameter_count = spec.parameter_count
        self._optimizer = optimizer
        self._largest_weight = aggregation.largest_sample_weight
        self._protection = protection
        self._only_replays = only_replays
        self._learns_live = spec.learns_live

    @classmethod
    def of(cls, settings: LearnerSettings, spec: WeightSpec) -> Ingest:
        """The rules of a learner."""
        protection = None if settings.privacy is None else Protection(settings.privacy)
        optimizer, only_replays = settings.optimizer_for(spec), settings.only_replays(spec)
        return cls(spec, judged(settings), optimizer, weighed(settings), protection, only_replays=only_replays)

    def judge(
        self,
        update: GradientUpdate,
        head: Head,
        present: Callable[[], Collection[str] | None] = lambda: None,
        unix_seconds: float = 0.0,
    ) -> AppliedUpdate:
        """The record of the head's next step that applies an update, which is no duplicate.

        Args:
            present: the clusters that a cohort waits for, where that counts; asked once all checks have passed.

        Raises:
            UpdateRejected: it may not be applied.
        """
        if self._only_replays and not update.replayed:
            raise UpdateRejected(
                Rejection.LIVE_GRADIENT,
                f"cluster {update.cluster} pushed a gradient from live experience, and this fleet learns from replays "
                "of clusters' pasts: set learning.source to auto there (an agent of before needs an upgrade)"
                + (", or optimizer.units to weights here" if self._learns_live else ""),
            )
        ledger, step = head.ledger, head.step
        if self._protection is not None:
            self._protection.admit(update, ledger)
        self._check_form(update, ledger, step)
        active = ledger.active_clusters_with(update.cluster)
        fair = ledger.latest_steps.fair_staleness(update.base_step, step)
        fair = min(fair, most_staleness(head.moves_since(update.base_step), active))
        excess = excess_staleness(fair, active)
        if excess > self._settings.max_staleness_steps:
            raise UpdateRejected(
                Rejection.TOO_STALE,
                f"base step {update.base_step} is {step - update.base_step} steps behind the head, {fair} of which "
                f"count and are {excess} more than {active} active clusters explain (limit "
                f"{self._settings.max_staleness_steps}); pull the head again",
            )
        norm = self._norm(update)
        gradient = clipped(update.gradient, norm, ledger.norms.limit(self._settings.clip_factor))
        applied_norm = norm if gradient is update.gradient else None
        if gradient is not update.gradient:
            update = dataclasses.replace(update, gradient=gradient)
        if self._protection is not None:
            update = self._protection.on(update)
            norm = gradient_norm(update.gradient)
            applied_norm = applied_norm if update.gradient is gradient else norm
        kind = head.aggregator.kind_of_next(update.cluster, present())
        rate = self._optimizer.rate_at(head.state.moves) * staleness_scale(fair, active)
        if kind is UpdateKind.STEP:  # a cohort weighs its updates itself
            rate *= sample_weight(update.samples, ledger.usual_samples(), self._largest_weight)
        return AppliedUpdate(
            step=step + 1,
            learning_rate=rate,
            active_clusters=active,
            unix_seconds=unix_seconds,
            update=update,
            kind=kind,
            noise_multiplier=0.0 if self._protection is None else self._protection.noise_multiplier,
            sent_norm=norm,
            applied_norm=applied_norm,
        )

    def _check_form(self, update: GradientUpdate, ledger: Ledger, step: int) -> None:
        sequences = ledger.sequences(update.cluster, update.incarnation)
        oldest = sequences.oldest
        if not oldest <= update.sequence <= _LARGEST_COUNT:
            raise UpdateRejected(Rejection.BAD_SEQUENCE, f"sequence {update.sequence} is below {oldest} or no count")
        if update.spec_digest != self._spec_digest:
            raise UpdateRejected(
                Rejection.WRONG_SPEC,
                f"update for spec {update.spec_digest[:12]!r}, the head is of {self._spec_digest[:12]!r}",
            )
        if update.gradient.shape != (self._parameter_count,):
            raise UpdateRejected(
                Rejection.WRONG_SHAPE,
                f"gradient has {update.gradient.size} values, the spec {self._parameter_count} parameters",
            )
        if not (
            1 <= update.samples <= _LARGEST_COUNT
            and math.isfinite(update.effective_samples)
            and update.effective_samples >= 0.0
        ):
            raise UpdateRejected(
                Rejection.BAD_SAMPLES, f"{update.samples} samples, {update.effective_samples} of them effective"
            )
        if update.base_step > step:
            raise UpdateRejected(
                Rejection.AHEAD_OF_HEAD, f"base step {update.base_step} is beyond the head's {step}; pull it again"
            )
        reset_step = ledger.reset_step
        if update.base_step < reset_step:
            raise UpdateRejected(
                Rejection.HEAD_RESET,
                f"base step {update.base_step} is of a head that was given up: it was reset to "
                f"v{ledger.reset_version} at step {reset_step}; pull the head again",
            )

    def _norm(self, update: GradientUpdate) -> float:
        # One pass: a NaN or infinity anywhere makes the sum of squares not finite.
        norm = gradient_norm(update.gradient)
        if not math.isfinite(norm) and not np.isfinite(update.gradient).all():
            raise UpdateRejected(Rejection.NOT_FINITE, "the gradient holds NaN or infinity")
        if norm > self._settings.max_gradient_norm:
            raise UpdateRejected(
                Rejection.NORM_TOO_LARGE, f"gradient norm {norm:.3g} exceeds {self._settings.max_gradient_norm:g}"
            )
        return norm


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
