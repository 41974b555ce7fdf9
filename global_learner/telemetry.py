"""Telemetry of the learner: Prometheus metrics `fedl2_learner_<what>_<unit>`, and structured log lines."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from foundation.lossy_stream import lossy
from global_learner.errors import Refusal, Rejection
from global_learner.folded_lines import RefusalLog
from policy_net.exchange.secret_metrics import SecretMetrics
from policy_net.exchange.signed_documents import VERSION_REFUSALS
from policy_net.throughput.fleet_priors import FleetPriors

_STALENESS_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_APPLY_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)
_CALL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
_GROUP_UPDATES = (1, 2, 4, 8, 16, 32, 64, 128)
OTHER_REFUSAL = "other"
"""The word for a reason of refusing a version that this program does not know."""
_SNAPSHOT_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 2.0)


class Telemetry:
    """All metrics of one learner, in a registry of its own."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        self.start_time = Gauge(
            "fedl2_learner_start_time_seconds", "When this process began, as Unix time.", registry=self.registry
        )
        self.start_time.set(clock())
        self.refusal_log = RefusalLog()
        self.updates = Counter(
            "fedl2_learner_updates_total",
            "Gradient updates answered by this process, by outcome (applied, duplicate, rejected).",
            ["outcome"],
            registry=self.registry,
        )
        self.rejections = Counter(
            "fedl2_learner_rejections_total", "Rejected updates, by reason.", ["reason"], registry=self.registry
        )
        self.only_replays = Gauge(
            "fedl2_learner_only_replays_flag",
            "1 where updates have to come from replays, as steps are counted in spreads (optimizer.units); else 0.",
            registry=self.registry,
        )
        self.clipped = Counter(
            "fedl2_learner_clipped_updates_total",
            "Applied updates whose gradient was longer than is usual, and was shortened (ingest.clip_factor).",
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "fedl2_learner_call_seconds",
            "Calls, by method and status; a push's includes the wait for the disk, and the pause of "
            "duplicates and rejections beyond the rate.",
            ["method", "status"],
            buckets=_CALL_SECONDS,
            registry=self.registry,
        )
        self._make_above()
        self.secrets = SecretMetrics(
            self.registry,
            certificate_expiry="fedl2_learner_certificate_expiry_seconds",
            certificate_life="fedl2_learner_certificate_life_seconds",
            refused="fedl2_learner_secret_refused_flag",
            replacements="fedl2_learner_secret_replacements_total",
        )
        self.privacy_epsilon = Gauge(
            "fedl2_learner_privacy_epsilon",
            "What the updates of the cluster that has spent most have cost in privacy (epsilon at privacy.delta); "
            "0 where no noise is added.",
            registry=self.registry,
        )
        self.head_step = Gauge("fedl2_learner_head_steps", "Updates that made the newest head.", registry=self.registry)
        self.durable_step = Gauge("fedl2_learner_durable_steps", "Updates that are on disk.", registry=self.registry)
        self.staleness = Histogram(
            "fedl2_learner_staleness_steps",
            "Head steps between an applied update's base and the head.",
            buckets=_STALENESS_STEPS,
            registry=self.registry,
        )
        self.apply_seconds = Histogram(
            "fedl2_learner_apply_seconds",
            "Checking and applying one update.",
            buckets=_APPLY_SECONDS,
            registry=self.registry,
        )
        self.group_updates = Histogram(
            "fedl2_learner_group_updates",
            "Updates that shared one synchronisation of the log.",
            buckets=_GROUP_UPDATES,
            registry=self.registry,
        )
        self.log_bytes = Counter(
            "fedl2_learner_log_written_bytes_total", "Bytes appended to the update log.", registry=self.registry
        )
        self.disk = Gauge(
            "fedl2_learner_disk_bytes",
            "What the state directory takes on disk, by part (log, snapshots, receipts, policies, heads, identity, "
            "signing, other).",
            ["part"],
            registry=self.registry,
        )
        self.log_limit = Gauge(
            "fedl2_learner_log_limit_bytes",
            "What the update log takes at most; updates wait before it is exceeded.",
            registry=self.registry,
        )
        self.disk_full = Gauge(
            "fedl2_learner_disk_full_flag",
            "1 while something waits for room on the disk, else 0.",
            registry=self.registry,
        )
        self.disk_refusals = Counter(
            "fedl2_learner_disk_full_refusals_total",
            "Calls refused because the disk is full, by method.",
            ["method"],
            registry=self.registry,
        )
        self.snapshot_seconds = Histogram(
            "fedl2_learner_snapshot_seconds",
            "Writing one snapshot and cutting the log.",
            buckets=_SNAPSHOT_SECONDS,
            registry=self.registry,
        )
        self.newest_version = Gauge(
            "fedl2_learner_newest_version_number", "The newest published version.", registry=self.registry
        )
        self.auto_assign = Gauge(
            "fedl2_learner_auto_assign_enabled_count",
            "1 if every new version acts everywhere at once (publish.auto_assign), else 0.",
            registry=self.registry,
        )
        self.scores = Counter(
            "fedl2_learner_scores_total",
            "Versions that were replayed on the fixed replays, by outcome (scored, failed).",
            ["outcome"],
            registry=self.registry,
        )
        self.scores_waiting = Gauge(
            "fedl2_learner_scores_waiting_count", "Versions that wait for their score.", registry=self.registry
        )
        self.damaged_files = Gauge(
            "fedl2_learner_damaged_version_files_count",
            "Files of versions that were found damaged or gone; all else is served.",
            registry=self.registry,
        )
        self.head_resets = Counter(
            "fedl2_learner_head_resets_total", "Times the head was reset to a version.", registry=self.registry
        )
        self.quarantined = Gauge(
            "fedl2_learner_quarantined_clusters_count",
            "Clusters whose updates are not looked at.",
            registry=self.registry,
        )
        self.waiting = Gauge(
            "fedl2_learner_cohort_updates_count",
            "Updates that wait for their cohort to be complete.",
            registry=self.registry,
        )
        self.belief_reports = Counter(
            "fedl2_learner_belief_reports_total",
            "Reports of speeds, by outcome (taken, repeated, or why it was refused).",
            ["outcome"],
            registry=self.registry,
        )
        self._add_rollouts()
        # What alerts ask for is there with 0 from the start: `increase` does not see a counter that begins with 1.
        for counter, words in (
            (self.updates, ("applied", "duplicate", "rejected")),
            (self.rejections, tuple(Rejection)),
            (self.refused_versions, (*VERSION_REFUSALS, OTHER_REFUSAL)),
            (self.rollouts, ("done", "rolled-back")),
        ):
            for word in words:
                counter.labels(word)
        self.job_types = Gauge(
            "fedl2_learner_job_types_count", "Job types in the fleet's vocabulary.", registry=self.registry
        )
        self.priors_statistics = Gauge(
            "fedl2_learner_priors_statistics_count",
            "Splits of job types whose speed the newest priors say.",
            registry=self.registry,
        )
        self.priors_observations = Gauge(
            "fedl2_learner_priors_observations_count",
            "Intervals that clusters saw, behind the newest priors.",
            registry=self.registry,
        )
        self.priors_clusters = Gauge(
            "fedl2_learner_priors_clusters_count", "Clusters behind the newest priors.", registry=self.registry
        )
        self.priors_held_back = Gauge(
            "fedl2_learner_priors_held_back_count",
            "Job types of which the newest version follows reports only in part: too few tell of so large a move.",
            registry=self.registry,
        )
        self.priors_contradictions = Gauge(
            "fedl2_learner_priors_contradictions_count",
            "Job types that the newest priors withhold, and reports on a type that they leave out, as clusters "
            "contradict one another.",
            registry=self.registry,
        )
        self.clusters = Gauge(
            "fedl2_learner_clusters_count", "Clusters that registered and were not forgotten.", registry=self.registry
        )
        self.contested = Gauge(
            "fedl2_learner_contested_clusters_count",
            "Names by which two agents call themselves, and which they take from each other.",
            registry=self.registry,
        )
        self.cluster_silent = Gauge(
            "fedl2_learner_cluster_silent_seconds",
            "Seconds since a cluster was heard, of one that was never heard since the learner's start; 0 of one that "
            "has finished or was revoked.",
            ["cluster"],
            registry=self.registry,
        )
        self.enrollments = Counter(
            "fedl2_learner_enrollments_total",
            "Enrollments, by outcome (invited, enrolled, repeated, renewed, revoked, forgotten, or why it was refused; "
            "of people operator-enrolled and operator-revoked).",
            ["outcome"],
            registry=self.registry,
        )
        self.identity_refusals = Counter(
            "fedl2_learner_identity_refusals_total",
            "Calls refused for who made them, by reason; handshakes that fail never become calls.",
            ["reason"],
            registry=self.registry,
        )

        self.refusals = Counter(
            "fedl2_learner_refusals_total",
            "Calls refused, by method and reason (docs/guide/refusals.md); rejected updates are counted apart.",
            ["method", "reason"],
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "fedl2_learner_queue_seconds",
            "Calls that had to wait for a seat, by lane (operators, updates, heartbeats, registry, polls); those that "
            "waited in vain included.",
            ["lane"],
            buckets=_CALL_SECONDS,
            registry=self.registry,
        )
        self.seated = Gauge(
            "fedl2_learner_lane_calls_count", "Calls in progress, by lane.", ["lane"], registry=self.registry
        )
        self.queued = Gauge(
            "fedl2_learner_lane_waiting_calls_count",
            "Calls that wait for a seat, by lane.",
            ["lane"],
            registry=self.registry,
        )
        self.http_refusals = Counter(
            "fedl2_learner_http_refusals_total",
            "Requests to the HTTP port that got no page, by reason.",
            ["reason"],
            registry=self.registry,
        )

    def _make_above(self) -> None:
        """What a region says of its way up."""
        self.above_pushes = Counter(
            "fedl2_learner_above_pushes_total",
            "Of a region: its pushes that the learner above answered, by outcome (applied, duplicate, rejected).",
            ["outcome"],
            registry=self.registry,
        )
        self.above_updates = Counter(
            "fedl2_learner_above_updates_total",
            "Of a region: its clusters' updates that went up (passed), or that nobody will apply (lost).",
            ["outcome"],
            registry=self.registry,
        )
        self.above_base_step = Gauge(
            "fedl2_learner_above_base_steps",
            "Of a region: the step, above, of the head that its clusters teach at; 0 elsewhere.",
            registry=self.registry,
        )
        self.above_gathered = Gauge(
            "fedl2_learner_above_waiting_updates",
            "Of a region: its clusters' updates that wait for its next push; 0 elsewhere.",
            registry=self.registry,
        )
        self.above_open = Gauge(
            "fedl2_learner_above_open_pushes",
            "Of a region: 1 while a push waits for the answer of the learner above; 0 elsewhere.",
            registry=self.registry,
        )

    def _add_rollouts(self) -> None:
        self.refused_versions = Counter(
            "fedl2_learner_refused_versions_total",
            "Times a cluster told that it does not act on the version that it was assigned, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.cluster_refused_version = Gauge(
            "fedl2_learner_cluster_refused_version_number",
            "The version that a cluster told last that it does not act on, by cluster and reason; gone once it does.",
            ["cluster", "reason"],
            registry=self.registry,
        )
        self.rollout_evidence = Counter(
            "fedl2_learner_rollout_evidence_total",
            "Calls with evidence of a rollout, by outcome (taken, not-asked-for, ahead-of-time if some of it waits, or "
            "why it was refused).",
            ["outcome"],
            registry=self.registry,
        )
        self.rollout_queries = Counter(
            "fedl2_learner_rollout_queries_total",
            "Queries of rollouts' plans to Prometheus servers, by outcome (answered, unanswered).",
            ["outcome"],
            registry=self.registry,
        )
        self.rollout_running = Gauge(
            "fedl2_learner_rollout_running_count", "1 while a rollout runs, else 0.", registry=self.registry
        )
        self.rollout_phase = Gauge(
            "fedl2_learner_rollout_phase_state",
            "1 for the phase of the latest rollout (running, asking, paused, rolling-back, rolled-back, done), else 0; "
            "a rollout that asks or is paused waits for an operator.",
            ["phase"],
            registry=self.registry,
        )
        self.rollouts = Counter(
            "fedl2_learner_rollouts_total",
            "Rollouts that ended since the start, by outcome (done, rolled-back).",
            ["outcome"],
            registry=self.registry,
        )

    def on_refused_version(self, cluster: str, version: int, reason: str = "") -> None:
        """Show which version a cluster refuses now, and why; 0: none."""
        for word in (*VERSION_REFUSALS, OTHER_REFUSAL):
            if word != reason or not version:
                with contextlib.suppress(KeyError):  # it was not there
                    self.cluster_refused_version.remove(cluster, word)
        if version:
            self.cluster_refused_version.labels(cluster, reason).set(version)

    def on_refusal(self, method: str, reason: Refusal) -> None:
        """Count one call that was not done."""
        self.refusals.labels(method, reason).inc()

    def on_rollout(self, phase: str | None, phases: Iterable[str], running: bool) -> None:
        """Show which of all phases the latest rollout is in; None: there was none."""
        self.rollout_running.set(running)
        for each in phases:
            self.rollout_phase.labels(each).set(each == phase)

    def on_call(self, method: str, status: str, seconds: float) -> None:
        """Count one call."""
        self.call_seconds.labels(method, status).observe(seconds)

    def on_priors(self, merged: FleetPriors, held_back: int) -> None:
        """Show the size of new priors, and of how many types something was held back; on the registry's thread."""
        self.priors_held_back.set(held_back)
        self.priors_statistics.set(len(merged.statistics))
        self.priors_observations.set(merged.observations)
        self.priors_clusters.set(merged.clusters)
        self.priors_contradictions.set(len(merged.withheld) + len(merged.left_out))

    def on_flush(self, updates: int, size_bytes: int) -> None:
        """Count one group commit; called on the log's thread."""
        self.group_updates.observe(updates)
        self.log_bytes.inc(size_bytes)


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Key-value lines on a terminal, JSON lines elsewhere."""
    terminal = stream.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(lossy(stream)),
        cache_logger_on_first_use=False,  # a logger that was used once would write as it did then, for ever
    )
