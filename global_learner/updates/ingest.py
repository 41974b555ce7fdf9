"""Rules of an update: whether it is applied, from the cheapest check to the one that reads all of it, and how far.

What comes out is the record that applies it; nothing is changed yet.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection

import numpy as np

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings, LearnerSettings
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from global_learner.updates.norms import clipped, gradient_norm
from global_learner.updates.privacy import Protection, judged, weighed
from global_learner.updates.step_size import excess_staleness, most_staleness, sample_weight, staleness_scale
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import GradientUpdate

_LARGEST_COUNT = 2**53
"""Counts beyond this are no counts; also keeps them exact in JSON."""


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
                f"cluster {update.cluster} pushed a gradient from live experience, and steps are counted in spreads, "
                "which only replays of its past can take: set learning.source to auto there (an agent of before needs "
                "an upgrade), or optimizer.units to weights here",
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
