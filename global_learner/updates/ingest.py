"""Judgement of an update before anything changes: from the cheapest check to the one that reads the whole gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from global_learner.updates.step_size import excess_staleness, staleness_scale
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import GradientUpdate

_LARGEST_COUNT = 2**53
"""Counts beyond this are no counts; also keeps them exact in JSON."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An update that may be applied: how late it is, and how far it may step."""

    staleness: int
    active_clusters: int
    scale: float
    gradient_norm: float


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
        excess = excess_staleness(staleness, active)
        if excess > self._settings.max_staleness_steps:
            raise UpdateRejected(
                Rejection.TOO_STALE,
                f"base step {update.base_step} is {staleness} steps behind the head, {excess} more than {active} "
                f"active clusters explain (limit {self._settings.max_staleness_steps}); pull the head again",
            )
        return Judgement(staleness, active, staleness_scale(staleness, active), self._norm(update))

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
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(np.dot(update.gradient, update.gradient))
        if not math.isfinite(squares) and not np.isfinite(update.gradient).all():
            raise UpdateRejected(Rejection.NOT_FINITE, "the gradient holds NaN or infinity")
        norm = math.sqrt(squares)
        if norm > self._settings.max_gradient_norm:
            raise UpdateRejected(
                Rejection.NORM_TOO_LARGE, f"gradient norm {norm:.3g} exceeds {self._settings.max_gradient_norm:g}"
            )
        return norm
