"""Pushed updates, judged and applied one at a time; the counterpart of `rounds.py`.

Runs on the learner's event loop. Between two awaits nothing else happens, so judging, applying and queueing an update
for the log are one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic

from global_learner.errors import Rejection, UpdateRejected
from global_learner.fleet import ClusterEntry, Fleet, Status
from global_learner.head import Head
from global_learner.ingest import Ingest
from global_learner.log_writer import LogWriter
from global_learner.push_answer import Outcome, PushAnswer
from global_learner.quarantine import Quarantine
from global_learner.settings import LearnerSettings
from global_learner.step_length import learning_rate
from global_learner.telemetry import Telemetry
from global_learner.update_log import AppliedUpdate
from global_learner.upkeep import Upkeep
from policy_net.exchange.spec import Spec
from policy_net.exchange.wire import GradientUpdate


class Pushes(Generic[Status]):
    """Applies updates to the head, and counts what becomes of them.

    Args:
        rejected: notes that a cluster's update was rejected, and why.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        spec: Spec,
        head: Head,
        log: LogWriter,
        fleet: Fleet[Status],
        upkeep: Upkeep[Status],
        quarantine: Quarantine,
        telemetry: Telemetry,
        rejected: Callable[[str, Rejection], None],
        wall_clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._head = head
        self._log = log
        self._fleet = fleet
        self._upkeep = upkeep
        self._quarantine = quarantine
        self._telemetry = telemetry
        self._rejected = rejected
        self._wall_clock = wall_clock
        self._ingest = Ingest(spec, settings.ingest)

    def take(self, update: GradientUpdate, want_weights: bool) -> PushAnswer:
        """Judge an update and apply it, in one step; what the answer tells is not on disk yet."""
        try:
            entry = self._sender(update)
            if self._ingest.is_duplicate(update, self._head):
                entry.duplicates += 1
                answer = PushAnswer(Outcome.DUPLICATE, self._head.step, self._weights(want_weights))
            else:
                self._quarantine.admit(update.cluster)
                answer = self._apply(update, want_weights)
                self._quarantine.judged(update.cluster, None)
        except UpdateRejected as rejected:
            self._rejected(update.cluster, rejected.reason)
            answer = PushAnswer(
                Outcome.REJECTED,
                self._head.step,
                self._weights(want_weights),
                reason=rejected.reason,
                detail=str(rejected),
            )
        self._telemetry.updates.labels(answer.outcome).inc()
        return answer

    def _sender(self, update: GradientUpdate) -> ClusterEntry[Status]:
        entry = self._fleet.heard(update.cluster, update.incarnation)
        if entry is None:
            raise UpdateRejected(
                Rejection.UNKNOWN_INCARNATION,
                f"cluster {update.cluster} is not registered with incarnation {update.incarnation}",
            )
        return entry

    def _apply(self, update: GradientUpdate, want_weights: bool) -> PushAnswer:
        started = time.perf_counter()
        judgement = self._ingest.judge(update, self._head)
        kind = self._head.aggregator.kind_of_next(update.cluster)
        applied = AppliedUpdate(
            step=self._head.step + 1,
            learning_rate=learning_rate(
                self._settings.optimizer, self._settings.aggregation, self._head, judgement, update, kind
            ),
            active_clusters=judgement.active_clusters,
            unix_seconds=self._wall_clock(),
            update=update,
            kind=kind,
        )
        self._log.append(applied)
        self._head.apply(applied)
        self._telemetry.apply_seconds.observe(time.perf_counter() - started)
        self._telemetry.staleness.observe(judgement.staleness)
        self._upkeep.after_update(self._head, applied.unix_seconds)
        return PushAnswer(
            Outcome.APPLIED,
            self._head.step,
            self._weights(want_weights),
            staleness=judgement.staleness,
            learning_rate=applied.learning_rate,
            gradient_norm=judgement.gradient_norm,
            active_clusters=judgement.active_clusters,
        )

    def _weights(self, wanted: bool) -> bytes | None:
        return self._head.weights_bytes() if wanted else None
