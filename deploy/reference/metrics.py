"""The page of metrics, read from the registries that `/metrics` answers from."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

import cluster_agent.telemetry
import elastic_runtime.coordinator.metrics
import global_learner.telemetry
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.protocol.plan import JobPhase

_HEAD = """# Metrics

Prometheus text at `/metrics`, named `fedl2_<component>_<what>_<unit>`. The learner answers on its
`telemetry.http_listen`, beside `/healthz` (the process lives) and `/readyz` (it serves); the agent on its
`telemetry.metrics_port`, beside `/healthz` (its decision loop turns) and `/readyz` (it could decide); a training job's
coordinator on `--metrics-port`. This page is made from the programs by `make reference`.
"""


_NO_STATUS = JobStatus(job="", phase=JobPhase.STARTING)


def metrics_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for title, registry in (
        ("global-learner", global_learner.telemetry.LearnerTelemetry().registry),
        ("cluster-agent", cluster_agent.telemetry.AgentTelemetry().registry),
        ("elastic-run", elastic_runtime.coordinator.metrics.JobMetrics(lambda: _NO_STATUS).registry),
    ):
        parts.append(f"\n## `{title}`\n\n| metric | kind | meaning |\n|---|---|---|\n")
        parts += [f"| `{name}` | {kind} | {meaning} |\n" for name, kind, meaning in _metrics(registry)]
    return "".join(parts)


def _metrics(registry: CollectorRegistry) -> list[tuple[str, str, str]]:
    # Prometheus adds _total to a counter's samples; the page shows the name that a query uses.
    return [
        (metric.name + ("_total" if metric.type == "counter" else ""), metric.type, metric.documentation)
        for metric in registry.collect()
    ]
