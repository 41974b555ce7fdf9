"""Judgement of an update before anything changes: from the cheapest check to the one that reads the whole gradient."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.updates.fair_staleness import most_staleness
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from global_learner.updates.norms import clipped, gradient_norm
from global_learner.updates.step_size import excess_staleness, staleness_scale
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import GradientUpdate

_LARGEST_COUNT = 2**53
"""Counts beyond this are no counts; also keeps them exact in JSON."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An update that may be applied: how late it is, how far it may step, and what of it counts.

    Attributes:
        staleness: in head steps, each counted.
        gradient_norm: as the cluster sent it.
        update: with the gradient that is to be applied and logged: its own, or one that was clipped.
        applied_norm: of that gradient; None where only the gradient can tell.
    """

    staleness: int
    active_clusters: int
    scale: float
    gradient_norm: float
    update: GradientUpdate
    applied_norm: float | None

    @property
    def was_clipped(self) -> bool:
        """Whether the gradient was longer than what is usual allows."""
        return self.applied_norm is None


class Ingest:
    """The rules for one spec."""

    def __init__(self, spec: WeightSpec, settings: IngestSettings) -> None:
        self._settings = settings
        self._spec_digest = spec.digest
        self._parameter_count = spec.parameter_count

    def is_duplicate(self, update: GradientUpdate, head: Head) -> bool:
        """Whether this very update was applied before."""
        return head.ledger.sequences(update.cluster, update.incarnation).holds(update.sequence)

    def judge(self, update: GradientUpdate, head: Head) -> Judgement:
        """Whether an update that is no duplicate may be applied to the head.

        Raises:
            UpdateRejected: it may not; nothing was changed.
        """
        step = head.step
        self._check_form(update, head.ledger, step)
        active = head.ledger.active_clusters_with(update.cluster)
        staleness = step - update.base_step
        fair = head.ledger.latest_steps.fair_staleness(update.base_step, step)
        fair = min(fair, most_staleness(head.moves_since(update.base_step), active))
        excess = excess_staleness(fair, active)
        if excess > self._settings.max_staleness_steps:
            raise UpdateRejected(
                Rejection.TOO_STALE,
                f"base step {update.base_step} is {staleness} steps behind the head, {fair} of which count and are "
                f"{excess} more than {active} "
                f"active clusters explain (limit {self._settings.max_staleness_steps}); pull the head again",
            )
        norm = self._norm(update)
        scale = staleness_scale(fair, active)
        gradient = clipped(update.gradient, norm, head.ledger.norms.limit(self._settings.clip_factor))
        if gradient is update.gradient:
            return Judgement(staleness, active, scale, norm, update, norm)
        return Judgement(staleness, active, scale, norm, dataclasses.replace(update, gradient=gradient), None)

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
