"""Telemetry of the learner: Prometheus metrics `fedl2_learner_<what>_<unit>`, and structured log lines."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from foundation.lossy_stream import lossy
from global_learner.errors import CallRefusal, Rejection
from global_learner.folded_lines import CallRefusalLog
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


class LearnerTelemetry:
    """All metrics of one learner, in a registry of its own."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.start_time = gauge("fedl2_learner_start_time_seconds", "When this process began, as Unix time.")
        self.start_time.set(clock())
        self.refusal_log = CallRefusalLog()
        self.updates = counter(
            "fedl2_learner_updates_total",
            "Gradient updates answered by this process, by outcome (applied, duplicate, rejected).",
            ["outcome"],
        )
        self.rejections = counter("fedl2_learner_rejections_total", "Rejected updates, by reason.", ["reason"])
        self.only_replays = gauge(
            "fedl2_learner_only_replays_flag",
            "1 where updates have to come from replays (optimizer.units); else 0.",
        )
        self.clipped = counter(
            "fedl2_learner_clipped_updates_total",
            "Applied updates whose gradient was longer than is usual, and was shortened.",
        )
        self.call_seconds = histogram(
            "fedl2_learner_call_seconds",
            "Calls, by method and status; a push's includes the wait for the disk, and the pause of "
            "duplicates and rejections beyond the rate.",
            ["method", "status"],
            buckets=_CALL_SECONDS,
        )
        self._make_above()
        self.secrets = SecretMetrics(
            self.registry,
            certificate_expiry="fedl2_learner_certificate_expiry_seconds",
            certificate_life="fedl2_learner_certificate_life_seconds",
            refused="fedl2_learner_secret_refused_flag",
            replacements="fedl2_learner_secret_replacements_total",
        )
        self.privacy_epsilon = gauge(
            "fedl2_learner_privacy_epsilon",
            "What the updates of the cluster that has spent most have cost in privacy (epsilon at privacy.delta); "
            "0 where no noise is added.",
        )
        self.head_step = gauge("fedl2_learner_head_steps", "Updates that made the newest head.")
        self.durable_step = gauge("fedl2_learner_durable_steps", "Updates that are on disk.")
        self.staleness = histogram(
            "fedl2_learner_staleness_steps",
            "Head steps between an applied update's base and the head.",
            buckets=_STALENESS_STEPS,
        )
        self.apply_seconds = histogram(
            "fedl2_learner_apply_seconds", "Checking and applying one update.", buckets=_APPLY_SECONDS
        )
        self.group_updates = histogram(
            "fedl2_learner_group_updates", "Updates that shared one synchronisation of the log.", buckets=_GROUP_UPDATES
        )
        self.log_bytes = counter("fedl2_learner_log_written_bytes_total", "Bytes appended to the update log.")
        self.disk = gauge(
            "fedl2_learner_disk_bytes",
            "What the state directory takes on disk, by part (log, snapshots, receipts, policies, heads, identity, "
            "signing, other).",
            ["part"],
        )
        self.log_limit = gauge(
            "fedl2_learner_log_limit_bytes", "What the update log takes at most; updates wait before it is exceeded."
        )
        self.disk_full = gauge("fedl2_learner_disk_full_flag", "1 while something waits for room on the disk, else 0.")
        self.disk_refusals = counter(
            "fedl2_learner_disk_full_refusals_total", "Calls refused because the disk is full, by method.", ["method"]
        )
        self.snapshot_seconds = histogram(
            "fedl2_learner_snapshot_seconds", "Writing one snapshot and cutting the log.", buckets=_SNAPSHOT_SECONDS
        )
        self.newest_version = gauge("fedl2_learner_newest_version_number", "The newest published version.")
        self.auto_assign = gauge(
            "fedl2_learner_auto_assign_enabled_count",
            "1 if every new version acts everywhere at once (publish.auto_assign), else 0.",
        )
        self.scores = counter(
            "fedl2_learner_scores_total",
            "Versions that were replayed on the fixed replays, by outcome (scored, failed).",
            ["outcome"],
        )
        self.scores_waiting = gauge("fedl2_learner_scores_waiting_count", "Versions that wait for their score.")
        self.damaged_files = gauge(
            "fedl2_learner_damaged_version_files_count",
            "Files of versions that were found damaged or gone; all else is served.",
        )
        self.head_resets = counter("fedl2_learner_head_resets_total", "Times the head was reset to a version.")
        self.quarantined = gauge(
            "fedl2_learner_quarantined_clusters_count", "Clusters whose updates are not looked at."
        )
        self.waiting = gauge("fedl2_learner_cohort_updates_count", "Updates that wait for their cohort to be complete.")
        self.belief_reports = counter(
            "fedl2_learner_belief_reports_total",
            "Reports of speeds, by outcome (taken, repeated, or why it was refused).",
            ["outcome"],
        )
        self._make_rollouts()
        # What alerts ask for is there with 0 from the start: `increase` does not see a counter that begins with 1.
        for metric, words in (
            (self.updates, ("applied", "duplicate", "rejected")),
            (self.rejections, tuple(Rejection)),
            (self.refused_versions, (*VERSION_REFUSALS, OTHER_REFUSAL)),
            (self.rollouts, ("done", "rolled-back")),
        ):
            for word in words:
                metric.labels(word)
        self._make_priors()
        self.clusters = gauge("fedl2_learner_clusters_count", "Clusters that registered and were not forgotten.")
        self.contested = gauge(
            "fedl2_learner_contested_clusters_count",
            "Names by which two agents call themselves, and which they take from each other.",
        )
        self.cluster_silent = gauge(
            "fedl2_learner_cluster_silent_seconds",
            "Seconds since a cluster was heard, of one that was never heard since the learner's start; 0 of one that "
            "has finished or was revoked.",
            ["cluster"],
        )
        self.enrollments = counter(
            "fedl2_learner_enrollments_total",
            "Enrollments, by outcome (invited, enrolled, repeated, renewed, revoked, forgotten, or why it was refused; "
            "of people operator-enrolled and operator-revoked).",
            ["outcome"],
        )
        self.identity_refusals = counter(
            "fedl2_learner_identity_refusals_total",
            "Calls refused for who made them, by reason; handshakes that fail never become calls.",
            ["reason"],
        )

        self.refusals = counter(
            "fedl2_learner_refusals_total",
            "Calls refused, by method and reason (docs/guide/refusals.md); rejected updates are counted apart.",
            ["method", "reason"],
        )
        self.queue_seconds = histogram(
            "fedl2_learner_queue_seconds",
            "Calls that had to wait for a seat, by lane (operators, updates, heartbeats, registry, polls); those that "
            "waited in vain included.",
            ["lane"],
            buckets=_CALL_SECONDS,
        )
        self.seated = gauge("fedl2_learner_lane_calls_count", "Calls in progress, by lane.", ["lane"])
        self.queued = gauge("fedl2_learner_lane_waiting_calls_count", "Calls that wait for a seat, by lane.", ["lane"])
        self.http_refusals = counter(
            "fedl2_learner_http_refusals_total", "Requests to the HTTP port that got no page, by reason.", ["reason"]
        )

    def _make_priors(self) -> None:
        """What the newest version says of speeds."""
        gauge = partial(Gauge, registry=self.registry)
        self.job_types = gauge("fedl2_learner_job_types_count", "Job types in the fleet's vocabulary.")
        self.priors_statistics = gauge(
            "fedl2_learner_priors_statistics_count", "Splits of job types whose speed the newest priors say."
        )
        self.priors_observations = gauge(
            "fedl2_learner_priors_observations_count", "Intervals that clusters saw, behind the newest priors."
        )
        self.priors_clusters = gauge("fedl2_learner_priors_clusters_count", "Clusters behind the newest priors.")
        self.priors_held_back = gauge(
            "fedl2_learner_priors_held_back_count",
            "Job types of which the newest version follows reports only in part: too few tell of so large a move.",
        )
        self.priors_contradictions = gauge(
            "fedl2_learner_priors_contradictions_count",
            "Job types that the newest priors withhold, and reports on a type that they leave out, as clusters "
            "contradict one another.",
        )

    def _make_above(self) -> None:
        """What a region says of its way up."""
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.above_pushes = counter(
            "fedl2_learner_above_pushes_total",
            "Of a region: its pushes that the learner above answered, by outcome (applied, duplicate, rejected).",
            ["outcome"],
        )
        self.above_updates = counter(
            "fedl2_learner_above_updates_total",
            "Of a region: its clusters' updates that went up (passed), or that nobody will apply (lost).",
            ["outcome"],
        )
        self.above_base_step = gauge(
            "fedl2_learner_above_base_steps",
            "Of a region: the step, above, of the head that its clusters teach at; 0 elsewhere.",
        )
        self.above_gathered = gauge(
            "fedl2_learner_above_waiting_updates",
            "Of a region: its clusters' updates that wait for its next push; 0 elsewhere.",
        )
        self.above_open = gauge(
            "fedl2_learner_above_open_pushes",
            "Of a region: 1 while a push waits for the answer of the learner above; 0 elsewhere.",
        )

    def _make_rollouts(self) -> None:
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.refused_versions = counter(
            "fedl2_learner_refused_versions_total",
            "Times a cluster told that it does not act on the version that it was assigned, by reason.",
            ["reason"],
        )
        self.cluster_refused_version = gauge(
            "fedl2_learner_cluster_refused_version_number",
            "The version that a cluster told last that it does not act on, by cluster and reason; gone once it does.",
            ["cluster", "reason"],
        )
        self.rollout_evidence = counter(
            "fedl2_learner_rollout_evidence_total",
            "Calls with evidence of a rollout, by outcome (taken, not-asked-for, ahead-of-time if some of it waits, or "
            "why it was refused).",
            ["outcome"],
        )
        self.rollout_queries = counter(
            "fedl2_learner_rollout_queries_total",
            "Queries of rollouts' plans to Prometheus servers, by outcome (answered, unanswered).",
            ["outcome"],
        )
        self.rollout_running = gauge("fedl2_learner_rollout_running_count", "1 while a rollout runs, else 0.")
        self.rollout_phase = gauge(
            "fedl2_learner_rollout_phase_state",
            "1 for the phase of the latest rollout (running, asking, paused, rolling-back, rolled-back, done), else 0; "
            "a rollout that asks or is paused waits for an operator.",
            ["phase"],
        )
        self.rollouts = counter(
            "fedl2_learner_rollouts_total",
            "Rollouts that ended since the start, by outcome (done, rolled-back).",
            ["outcome"],
        )

    def on_refused_version(self, cluster: str, version: int, reason: str = "") -> None:
        """Show which version a cluster refuses now, and why; 0: none."""
        for word in (*VERSION_REFUSALS, OTHER_REFUSAL):
            if word != reason or not version:
                with contextlib.suppress(KeyError):  # it was not there
                    self.cluster_refused_version.remove(cluster, word)
        if version:
            self.cluster_refused_version.labels(cluster, reason).set(version)

    def on_refusal(self, method: str, reason: CallRefusal) -> None:
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
