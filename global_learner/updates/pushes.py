"""Pushed updates, judged and applied one at a time; the counterpart of `rounds.py`.

Between two awaits of the learner's event loop nothing else happens, so judging, applying and queueing an update for the
log are one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from global_learner.aggregation.settings import AggregationMode
from global_learner.errors import Rejection, UpdateRejected
from global_learner.fleet import ClusterEntry
from global_learner.settings import LearnerSettings
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.ingest import Ingest
from global_learner.updates.parts import Learned, Process
from global_learner.updates.privacy import Protection, judged, weighed
from global_learner.updates.step_size import StepSize
from policy_net.exchange.wire import GradientUpdate


class UpdateOutcome(StrEnum):
    """What became of an update."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class UpdateAnswer:
    """The answer to an update.

    Attributes:
        head_step: on disk when this is read; `weights` are of this step, None unless asked for.
        reason: a `Rejection`, or empty; `detail` is for people.
        learning_rate: what the update was applied with.
        is_beyond_rate: it applies nothing, and the cluster gets such answers faster than it may send updates.
    """

    outcome: UpdateOutcome
    head_step: int
    weights: bytes | None
    staleness: int = 0
    reason: str = ""
    detail: str = ""
    learning_rate: float = 0.0
    gradient_norm: float = 0.0
    active_clusters: int = 0
    clipped: bool = False
    is_beyond_rate: bool = False


class Pushes:
    """Applies updates to the head by `commit`, which is told a gradient's norm where that is known, and counts them."""

    def __init__(
        self,
        settings: LearnerSettings,
        learned: Learned,
        process: Process,
        commit: Callable[[AppliedUpdate, float | None], None],
        on_rejected: Callable[[str, Rejection], None],
    ) -> None:
        self._head = learned.head
        self._fleet = learned.fleet
        self._quarantine = learned.quarantine
        self._rates = learned.rates
        self._telemetry = process.telemetry
        self._wall_clock = process.wall_clock
        self._commit = commit
        self._on_rejected = on_rejected
        self._protection = None if settings.privacy is None else Protection(settings.privacy)
        self._ingest = Ingest(learned.spec, judged(settings))
        self._noise_multiplier = 0.0 if settings.privacy is None else settings.privacy.noise_multiplier
        self._asks_who_is_present = settings.aggregation.mode is AggregationMode.ROBUST
        self._only_replays = settings.only_replays(learned.spec)
        self._step_size = StepSize(settings.optimizer_for(learned.spec), weighed(settings))

    def take(self, update: GradientUpdate, want_weights: bool) -> UpdateAnswer:
        """Judge an update and apply it, in one step; what the answer tells is not on disk yet.

        Raises:
            TooFast: the cluster sends more than its decisions can make; nothing was looked at.
        """
        try:
            entry = self._sender(update)
            if self._ingest.is_duplicate(update, self._head):
                entry.duplicates += 1
                answer = self._unapplied(UpdateOutcome.DUPLICATE, update.cluster, want_weights)
            else:
                self._quarantine.admit(update.cluster)
                self._rates.admit(update.cluster)
                answer = self._apply(update, want_weights)
                self._quarantine.on_judged(update.cluster, None)
                self._rates.on_applied(update.cluster)
                self._fleet.on_applied(entry)
        except UpdateRejected as rejected:
            self._on_rejected(update.cluster, rejected.reason)
            answer = self._unapplied(
                UpdateOutcome.REJECTED, update.cluster, want_weights, rejected.reason, detail=str(rejected)
            )
        self._telemetry.updates.labels(answer.outcome).inc()
        return answer

    def _unapplied(
        self, outcome: UpdateOutcome, cluster: str, want_weights: bool, reason: str = "", detail: str = ""
    ) -> UpdateAnswer:
        # Names that are not registered share a bucket: there may be any number of them.
        known = cluster if self._fleet.get(cluster) is not None else ""
        return UpdateAnswer(
            outcome,
            self._head.step,
            self._weights(want_weights),
            reason=reason,
            detail=detail,
            is_beyond_rate=self._rates.is_beyond(known),
        )

    def _sender(self, update: GradientUpdate) -> ClusterEntry:
        entry = self._fleet.on_heard(update.cluster, update.incarnation)
        if entry is None:
            raise UpdateRejected(
                Rejection.UNKNOWN_INCARNATION,
                f"cluster {update.cluster} is not registered with incarnation {update.incarnation}",
            )
        return entry

    def _apply(self, update: GradientUpdate, want_weights: bool) -> UpdateAnswer:
        if self._only_replays and not update.replayed:
            raise UpdateRejected(
                Rejection.LIVE_GRADIENT,
                f"cluster {update.cluster} pushed a gradient from live experience, and steps are counted in spreads, "
                "which only replays of its past can take: set learning.source to auto there (an agent of before needs "
                "an upgrade), or optimizer.units to weights here",
            )
        started = time.perf_counter()
        step = self._head.step
        if self._protection is not None:
            self._protection.admit(update, self._head.ledger)
        judgement = self._ingest.judge(update, self._head)
        if self._protection is not None:
            judgement = self._protection.on(judgement)
        kind = self._head.aggregator.kind_of_next(update.cluster, self._present())
        applied = AppliedUpdate(
            step=step + 1,
            learning_rate=self._step_size.learning_rate(
                kind, self._head.state.moves, judgement.scale, judgement.update.samples, self._head.ledger.usual_samples
            ),
            active_clusters=judgement.active_clusters,
            unix_seconds=self._wall_clock(),
            update=judgement.update,
            kind=kind,
            noise_multiplier=self._noise_multiplier,
        )
        self._commit(applied, judgement.applied_norm)
        if judgement.was_clipped:
            self._telemetry.clipped.inc()
        self._telemetry.apply_seconds.observe(time.perf_counter() - started)
        self._telemetry.staleness.observe(judgement.staleness)
        return UpdateAnswer(
            UpdateOutcome.APPLIED,
            applied.step,
            self._weights(want_weights),
            staleness=judgement.staleness,
            learning_rate=applied.learning_rate,
            gradient_norm=judgement.gradient_norm,
            active_clusters=judgement.active_clusters,
            clipped=judgement.was_clipped,
        )

    def _present(self) -> list[str] | None:
        """Whom a cohort waits for, where that counts; a cluster in quarantine is not waited for."""
        if not self._asks_who_is_present:
            return None
        return [name for name in self._fleet.present() if not self._quarantine.remaining(name)]

    def _weights(self, wanted: bool) -> bytes | None:
        return self._head.weights_bytes() if wanted else None
