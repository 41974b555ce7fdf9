"""Updates that clusters push, and heads that they pull: one function from the request to the durable answer.

Between two awaits of the learner's event loop nothing else happens, so judging, applying and queueing an update for the
log are one step. The counterpart for rounds is `updates/rounds.py`.

An update comes no faster for long than its cluster's decisions can produce them, by a token bucket a cluster. An agent
sends at most one update a decision, and after an outage what its queue held, which the bucket's depth allows for. A
faster one is told when to come again and keeps its update: agents wait and offer it again, as to a learner that is
busy. Answers that apply nothing (duplicates, rejections) have a bucket of their own, as deep and as fast; a cluster
that empties it is answered after a pause, so that asking again at once costs the others little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationMode
from global_learner.errors import NoHeadYet, Rejection, TooFast, UpdateRejected
from global_learner.maintenance import Maintenance
from global_learner.settings import LearnerSettings
from global_learner.storage.log_writer import LogWriter
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.ingest import Ingest
from global_learner.updates.parts import Learned, Process
from policy_net.exchange.wire import GradientUpdate, PushOutcome


@dataclass(frozen=True, slots=True)
class UpdateAnswer:
    """The answer to an update.

    Attributes:
        head_step: on disk when this is read; `weights` are of this step, None unless asked for.
        reason: a `Rejection`, or empty; `detail` is for people.
        learning_rate: what the update was applied with.
        is_beyond_rate: it applies nothing, and the cluster gets such answers faster than it may send updates.
    """

    outcome: PushOutcome
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
    """Answers to clusters that push updates and pull heads."""

    def __init__(
        self,
        settings: LearnerSettings,
        learned: Learned,
        log: LogWriter,
        maintenance: Maintenance,
        process: Process,
        clock: Callable[[], float],
    ) -> None:
        self._head = learned.head
        self._fleet = learned.fleet
        self._quarantine = learned.quarantine
        self._log = log
        self._maintenance = maintenance
        self._telemetry = process.telemetry
        self._wall_clock = process.wall_clock
        self._rates = UpdateRates(settings.updates_per_second, settings.ingest.burst_updates, clock)
        self._ingest = Ingest.of(settings, learned.spec)
        self._waits_for_present = settings.aggregation.mode is AggregationMode.ROBUST

    async def push(self, update: GradientUpdate, want_weights: bool) -> UpdateAnswer:
        """Apply an update once, or say why not; what the answer tells is on disk.

        Raises:
            NotNow: it cannot be kept now, or a region has no head yet.
            TooFast: the cluster sends more than its decisions can make; nothing was looked at.
            LogBroken: it could not be kept; the learner ends.
        """
        self._check_head()
        await self._maintenance.wait_for_space()
        head, cluster = self._head, update.cluster
        applied: AppliedUpdate | None = None
        outcome, reason, detail = PushOutcome.DUPLICATE, "", ""
        try:
            entry = self._fleet.on_heard(cluster, update.incarnation)
            if entry is None:
                raise UpdateRejected(  # noqa: TRY301
                    Rejection.UNKNOWN_INCARNATION,
                    f"cluster {cluster} is not registered with incarnation {update.incarnation}",
                )
            if head.ledger.holds(update):
                entry.duplicates += 1
            else:
                self._quarantine.admit(cluster)
                self._rates.admit(cluster)
                started = time.perf_counter()
                applied = self._ingest.judge(update, head, self._present, self._wall_clock())
                self._maintenance.commit(applied)
                self._telemetry.apply_seconds.observe(time.perf_counter() - started)
                self._quarantine.on_judged(cluster, None)
                self._rates.on_applied(cluster)
                self._fleet.on_applied(entry)
        except UpdateRejected as rejected:
            self.on_rejected(cluster, rejected.reason)
            outcome, reason, detail = PushOutcome.REJECTED, rejected.reason, str(rejected)
        weights = head.weights_bytes() if want_weights else None
        if applied is None:
            # Names that are not registered share a bucket: there may be any number of them.
            known = cluster if self._fleet.get(cluster) is not None else ""
            beyond = self._rates.is_beyond(known)
            answer = UpdateAnswer(outcome, head.step, weights, reason=reason, detail=detail, is_beyond_rate=beyond)
        else:
            clipped = applied.applied_norm is None
            self._telemetry.clipped.inc(clipped)
            self._telemetry.staleness.observe(applied.staleness)
            answer = UpdateAnswer(
                PushOutcome.APPLIED,
                applied.step,
                weights,
                staleness=applied.staleness,
                learning_rate=applied.learning_rate,
                gradient_norm=applied.sent_norm,
                active_clusters=applied.active_clusters,
                clipped=clipped,
            )
        self._telemetry.updates.labels(answer.outcome).inc()
        await self._log.durable(answer.head_step)
        return answer

    async def pull(self, cluster: str, incarnation: int, have_step: int | None) -> tuple[int, bytes | None]:
        """The head's step and weights; no weights if it is still at `have_step`.

        Raises:
            UnknownIncarnation: the cluster has to register (again).
            NotNow: a region has no head yet.
        """
        self._fleet.check_registered(cluster, incarnation)
        self._check_head()
        step = self._head.step
        weights = None if have_step == step else self._head.weights_bytes()
        await self._log.durable(step)
        return step, weights

    def on_rejected(self, cluster: str, reason: Rejection) -> None:
        """Count a rejection of a cluster's."""
        self._fleet.on_rejected(cluster, reason)
        self._telemetry.rejections.labels(reason).inc()
        if self._fleet.get(cluster) is not None:
            self._quarantine.on_judged(cluster, reason)

    def _present(self) -> list[str] | None:
        """Whom a cohort waits for, where that counts; a cluster in quarantine is not waited for."""
        if not self._waits_for_present:
            return None
        return [name for name in self._fleet.present() if not self._quarantine.remaining(name)]

    def _check_head(self) -> None:
        """A region that never had a head of the learner above would teach at one that is nobody's."""
        region = self._head.aggregator
        if isinstance(region, RegionAggregator) and region.base_step is None:
            raise NoHeadYet("this region has no head of the learner above yet; come again")


@dataclass(slots=True)
class _Bucket:
    tokens: float
    seconds: float


class UpdateRates:
    """The buckets of all clusters that sent something since the start.

    Args:
        per_second: updates that a cluster may send in the long run; 0: no limit.
        burst: how many it may send at once after a while of silence.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._unapplied: dict[str, _Bucket] = {}

    def admit(self, cluster: str) -> None:
        """See that a cluster may send an update now.

        Raises:
            TooFast: it may not, and when it may.
        """
        if self._per_second == 0.0:
            return
        bucket = self._filled(self._buckets, cluster)
        if bucket.tokens < 1.0:
            seconds = (1.0 - bucket.tokens) / self._per_second
            raise TooFast(
                f"cluster {cluster} sent more updates than its decisions can make: {self._burst:.0f} at once and "
                f"{self._per_second:g} a second in the long run (ingest.updates_per_second); send this one again in "
                f"{seconds:.1f} s"
            )

    def on_applied(self, cluster: str) -> None:
        """Count an update that was applied."""
        if self._per_second != 0.0:
            self._filled(self._buckets, cluster).tokens -= 1.0

    def is_beyond(self, cluster: str) -> bool:
        """Count an answer that applies nothing; whether the cluster had more of them than it may send updates."""
        if self._per_second == 0.0:
            return False
        bucket = self._filled(self._unapplied, cluster)
        if bucket.tokens < 1.0:
            return True
        bucket.tokens -= 1.0
        return False

    def _filled(self, buckets: dict[str, _Bucket], cluster: str) -> _Bucket:
        now = self._clock()
        bucket = buckets.setdefault(cluster, _Bucket(self._burst, now))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.seconds) * self._per_second)
        bucket.seconds = now
        return bucket
