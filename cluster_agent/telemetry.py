"""Telemetry of an agent: health at /healthz and /readyz, metrics `fedl2_agent_<what>_<unit>`, structured log lines."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from cluster_agent.errors import BadAgentConfig
from cluster_agent.guard import GuardedDecision, Intervention
from cluster_agent.settings import AgentTelemetrySettings
from foundation.lossy_stream import lossy
from policy_net.exchange.secret_metrics import SecretMetrics
from policy_net.exchange.signed_documents import VERSION_REFUSALS

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

GAP_SECONDS = 60.0
"""Between two looks more is a time in which this process was stopped, or nobody asked: a loop that woke is alive."""


class Health:
    """Liveness of the decision loop, which each wait notes; read by any thread.

    Each wait ends by itself: only what lies between two of them can hang, for longer than `longest_seconds`.

    Args:
        clock: seconds in which this process ran; read when a probe asks.
    """

    def __init__(self, longest_seconds: float, clock: Callable[[], float], not_ready: Callable[[], str]) -> None:
        self._longest_seconds, self._clock, self._not_ready = longest_seconds, clock, not_ready
        self._turned_at = math.inf
        """Whoever has not begun is not late, nor is one that waits."""

    def turned(self) -> None:
        """Note that the loop has turned."""
        self._turned_at = self._clock()

    def reported_by(self, wait: Callable[[float], bool]) -> Callable[[float], bool]:
        """The same wait, which is noted."""

        def noted(seconds: float) -> bool:
            self._turned_at = math.inf
            stops = wait(seconds)
            self.turned()
            return stops

        return noted

    @property
    def not_alive(self) -> str:
        """Why the process should be started again, in a line; empty where it need not be."""
        silent_seconds = self._clock() - self._turned_at
        if silent_seconds <= self._longest_seconds:
            return ""
        return f"the decision loop has not turned for {silent_seconds:.0f} s"

    @property
    def not_ready(self) -> str:
        """Why no decision can be taken, in a line; empty where one can."""
        return self.not_alive or self._not_ready()


_DECIDE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_STALENESS_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128)


class AgentTelemetry:
    """All metrics of one agent, in a registry of its own."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.start_time = gauge("fedl2_agent_start_time_seconds", "When this process began, as Unix time.")
        self.start_time.set(clock())
        self.decisions = counter("fedl2_agent_decisions_total", "Decisions made by this process.")
        self.decide_seconds = histogram(
            "fedl2_agent_decide_seconds", "From the state to the policy's allocation.", buckets=_DECIDE_SECONDS
        )
        self.interventions = counter(
            "fedl2_agent_guard_interventions_total",
            "Decisions that the guard changed or replaced, by reason.",
            ["reason"],
        )
        self.reward = gauge("fedl2_agent_reward_ratio", "Reward of the latest interval.")
        self.log_failures = counter("fedl2_agent_log_failures_total", "Decisions that could not be written to disk.")
        self.lesson_failures = counter(
            "fedl2_agent_lesson_failures_total", "Intervals from which nothing was learned because of a fault."
        )
        self.doubted_reports = counter(
            "fedl2_agent_doubted_reports_total",
            "Reports of progress that were too far from what is believed of the job's type to learn from.",
        )
        self.backend_failures = counter(
            "fedl2_agent_backend_failures_total", "Times the cluster did not answer, or could not carry a decision out."
        )
        self.queue_decisions = gauge("fedl2_agent_trainer_queue_decisions", "Decisions that wait for the trainer.")
        self.dropped_decisions = counter(
            "fedl2_agent_trainer_dropped_decisions_total", "Decisions that nobody could learn from in time."
        )
        self.from_twin = gauge(
            "fedl2_agent_twin_teaching_flag",
            "1 where gradients come from replays of this cluster's past, 0 where from what decisions brought.",
        )
        self.twin_agreement = gauge(
            "fedl2_agent_twin_agreement",
            "How far replays of the last week say what really happened: 1 exactly, 0 off by half or more.",
        )
        self.updates = counter("fedl2_agent_updates_total", "Gradient updates, by how they ended.", ["outcome"])
        self.rounds = counter("fedl2_agent_round_tasks_total", "Tasks of rounds, by how they ended.", ["outcome"])
        self.staleness_steps = histogram(
            "fedl2_agent_staleness_steps",
            "Head steps between an update's base and its application.",
            buckets=_STALENESS_STEPS,
        )
        self.learner_calls = counter(
            "fedl2_agent_learner_calls_total", "Calls to the learner, by method and outcome.", ["method", "outcome"]
        )
        self.rejected_versions = counter(
            "fedl2_agent_rejected_versions_total", "Assigned policy versions that could not be used."
        )
        self.version_refusals = counter(
            "fedl2_agent_version_refusals_total",
            "Times that an assigned version was not acted with, by reason: a signature, a digest, an old answer.",
            ["reason"],
        )
        self.timestamp_expiry = gauge(
            "fedl2_agent_timestamp_expiry_seconds",
            "Until when the fleet's key has said what this cluster is to act on, as Unix time; 0 before the first.",
        )
        self.belief_reports = counter(
            "fedl2_agent_belief_reports_total",
            "Reports of speeds to the learner, by outcome (taken, repeated, refused, unanswered).",
            ["outcome"],
        )
        self.evidence_reports = counter(
            "fedl2_agent_evidence_reports_total",
            "Reports of a rollout's evidence to the learner, by outcome (taken, over, refused, unanswered).",
            ["outcome"],
        )
        self.beside_version = gauge(
            "fedl2_agent_beside_version_number",
            "The version that a rollout has this agent hold beside the assigned one; 0 for none.",
        )
        self.rollout_number = gauge(
            "fedl2_agent_rollout_number", "The rollout whose assignment this agent does now; 0 for none."
        )
        self.evidence_blocks = gauge(
            "fedl2_agent_evidence_blocks_count", "Finished blocks of a rollout that the learner does not hold yet."
        )
        self.own_statistics = gauge(
            "fedl2_agent_own_statistics_count", "Splits of job types whose speed this cluster has seen."
        )
        self.prior_statistics = gauge(
            "fedl2_agent_prior_statistics_count",
            "Splits of job types whose speed the active policy takes from other clusters.",
        )
        self.secrets = SecretMetrics(
            self.registry,
            certificate_expiry="fedl2_agent_certificate_expiry_seconds",
            certificate_life="fedl2_agent_certificate_life_seconds",
            refused="fedl2_agent_secret_refused_flag",
            replacements="fedl2_agent_secret_replacements_total",
        )
        self.api_failures = counter(
            "fedl2_agent_api_failures_total",
            "Requests to a Kubernetes API server that failed, watches too, by kind of error.",
            ["error"],
        )
        self.object_reasons = counter(
            "fedl2_agent_object_reasons_total",
            "What there was to tell of ElasticTargets, their Jobs and TrainingJobs, by kind of object and reason; "
            "also where the agent may write no Events.",
            ["kind", "reason"],
        )
        self.size_changes = counter(
            "fedl2_agent_size_changes_total",
            "Changes of the sizes of Jobs with an ElasticTarget, by outcome (set, conflict, gone, failed, not-now).",
            ["outcome"],
        )
        self.namespace_unread = gauge(
            "fedl2_agent_namespace_unread_state",
            "1 where a namespace that the agent is to look after cannot be read: it does not exist, or has no Role for"
            " the agent; else 0.",
            ["namespace"],
        )
        self.acting_version = gauge("fedl2_agent_acting_version_number", "The version that acts; 0 for none.")
        # What alerts ask for is there with 0 from the start: `increase` does not see a counter that begins with 1.
        for intervention in Intervention:
            self.interventions.labels(intervention.value)
        for word in VERSION_REFUSALS:
            self.version_refusals.labels(word)

    def decided(self, guarded: GuardedDecision, reward: float | None, version: int) -> None:
        """Count one decision and its consequence."""
        self.decisions.inc()
        self.decide_seconds.observe(guarded.decide_seconds)
        if reward is not None:
            self.reward.set(reward)
        self.acting_version.set(version)
        for intervention in guarded.interventions:
            self.interventions.labels(intervention.value).inc()

    def reported(self, kind: str, reason: str) -> None:
        """Count something that there was to tell of an object in a cluster."""
        self.object_reasons.labels(kind, reason).inc()

    def serve(self, settings: AgentTelemetrySettings, health: Health) -> int | None:
        """Answer scrapes, and probes at /healthz and /readyz; returns the port, None if none is wanted.

        Raises:
            BadConfig: the port is taken.
        """
        if settings.metrics_port is None:
            return None
        try:
            server, _ = start_http_server(settings.metrics_port, settings.metrics_host, registry=self.registry)
        except OSError as error:
            raise BadAgentConfig(
                f"telemetry.metrics_port {settings.metrics_port}: cannot listen on {settings.metrics_host} "
                f"({error.strerror}); choose another port"
            ) from error
        app = server.get_app()
        if app is not None:
            server.set_app(_with_probes(app, health))
        return int(server.server_port)


def _with_probes(metrics: WSGIApplication, health: Health) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path not in ("/healthz", "/readyz"):
            return metrics(environ, start_response)
        why_not = health.not_alive if path == "/healthz" else health.not_ready
        status = "503 Service Unavailable" if why_not else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{why_not or 'ok'}\n".encode()]

    return app


def configure_logging(level: str, stream: TextIO | None = None, *, for_people: bool | None = None) -> None:
    """Structured lines on stderr: for people on a terminal, JSON otherwise; unless it is said who reads them."""
    target = sys.stderr if stream is None else stream
    for_people = target.isatty() if for_people is None else for_people
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if for_people
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(lossy(target)),
        cache_logger_on_first_use=False,
    )
