"""Grafana's dashboards of an agent and of a learner, as the JSON that Grafana imports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

_COLUMNS: Final = 24
_WIDTH, _HEIGHT = 8, 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture of curves over time.

    Attributes:
        unit: one of Grafana's words.
        curves: an expression of PromQL each, and what its curve is called; `{{label}}` stands for a label's value.
    """

    title: str
    unit: str
    curves: tuple[tuple[str, str], ...]


_OF = '{instance=~"$instance"}'


def _rate(metric: str, by: str = "") -> str:
    labels = f"instance, {by}" if by else "instance"
    return f"sum by ({labels}) (rate({metric}{_OF}[$__rate_interval]))"


def _quantile(of: float, metric: str, by: str = "") -> str:
    labels = f"instance, {by}, le" if by else "instance, le"
    return f"histogram_quantile({of}, sum by ({labels}) (rate({metric}_bucket{_OF}[$__rate_interval])))"


AGENT: Final = (
    Panel("Decisions", "ops", ((_rate("fedl2_agent_decisions_total"), "{{instance}}"),)),
    Panel(
        "Time of a decision",
        "s",
        (
            (_quantile(0.5, "fedl2_agent_decide_seconds"), "{{instance}} median"),
            (_quantile(0.99, "fedl2_agent_decide_seconds"), "{{instance}} 99th percentile"),
        ),
    ),
    Panel(
        "Decisions changed by the guard",
        "ops",
        ((_rate("fedl2_agent_guard_interventions_total", "reason"), "{{instance}} {{reason}}"),),
    ),
    Panel("Reward", "none", ((f"fedl2_agent_reward_ratio{_OF}", "{{instance}}"),)),
    Panel("Version that acts", "none", ((f"fedl2_agent_acting_version_number{_OF}", "{{instance}}"),)),
    Panel(
        "Failures",
        "ops",
        (
            (_rate("fedl2_agent_backend_failures_total"), "{{instance}} cluster"),
            (_rate("fedl2_agent_log_failures_total"), "{{instance}} disk"),
            (_rate("fedl2_agent_lesson_failures_total"), "{{instance}} lessons"),
        ),
    ),
    Panel(
        "Told of objects",
        "ops",
        ((_rate("fedl2_agent_object_reasons_total", "kind, reason"), "{{instance}} {{kind}} {{reason}}"),),
    ),
    Panel(
        "Changes of sizes", "ops", ((_rate("fedl2_agent_size_changes_total", "outcome"), "{{instance}} {{outcome}}"),)
    ),
    Panel(
        "Requests that failed", "ops", ((_rate("fedl2_agent_api_failures_total", "error"), "{{instance}} {{error}}"),)
    ),
    Panel(
        "Calls to the learner",
        "ops",
        ((_rate("fedl2_agent_learner_calls_total", "outcome"), "{{instance}} {{outcome}}"),),
    ),
    Panel(
        "Updates to the learner", "ops", ((_rate("fedl2_agent_updates_total", "outcome"), "{{instance}} {{outcome}}"),)
    ),
    Panel(
        "Speeds known",
        "none",
        (
            (f"fedl2_agent_own_statistics_count{_OF}", "{{instance}} own"),
            (f"fedl2_agent_prior_statistics_count{_OF}", "{{instance}} of other clusters"),
        ),
    ),
)
LEARNER: Final = (
    Panel("Updates", "ops", ((_rate("fedl2_learner_updates_total", "outcome"), "{{instance}} {{outcome}}"),)),
    Panel("Rejections", "ops", ((_rate("fedl2_learner_rejections_total", "reason"), "{{instance}} {{reason}}"),)),
    Panel(
        "Time of a call",
        "s",
        ((_quantile(0.99, "fedl2_learner_call_seconds", "method"), "{{instance}} {{method}} 99th percentile"),),
    ),
    Panel(
        "Steps",
        "none",
        (
            (f"fedl2_learner_head_steps{_OF}", "{{instance}} head"),
            (f"fedl2_learner_durable_steps{_OF}", "{{instance}} on disk"),
        ),
    ),
    Panel("Staleness", "none", ((_quantile(0.9, "fedl2_learner_staleness_steps"), "{{instance}} 90th percentile"),)),
    Panel("Newest version", "none", ((f"fedl2_learner_newest_version_number{_OF}", "{{instance}}"),)),
    Panel(
        "Clusters",
        "none",
        (
            (f"fedl2_learner_clusters_count{_OF}", "{{instance}} registered"),
            (f"fedl2_learner_quarantined_clusters_count{_OF}", "{{instance}} in quarantine"),
        ),
    ),
    Panel("Disk", "bytes", ((f"fedl2_learner_disk_bytes{_OF}", "{{instance}} {{part}}"),)),
    Panel("Refusals", "ops", ((_rate("fedl2_learner_refusals_total", "reason"), "{{instance}} {{reason}}"),)),
)


def dashboards() -> dict[str, str]:
    """File contents, by name."""
    agent = _dashboard("fedl2-agent", "fedl2: agents", AGENT, "fedl2_agent_acting_version_number")
    learner = _dashboard("fedl2-learner", "fedl2: learner", LEARNER, "fedl2_learner_head_steps")
    return {f"{found['uid']}.json": json.dumps(found, indent=1) + "\n" for found in (agent, learner)}


def _dashboard(uid: str, title: str, panels: tuple[Panel, ...], present: str) -> Json:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    instance = {
        "name": "instance",
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({present}, instance)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["fedl2"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, instance]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> Json:
    row, column = divmod(number * _WIDTH, _COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression, "legendFormat": name}
            for place, (expression, name) in enumerate(panel.curves)
        ],
    }
