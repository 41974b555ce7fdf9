"""Alerts and dashboards: of metrics that there are, right in Prometheus' eyes, each alert with what to do about it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from rendered import DEPLOY, LEARNER, MONITORED, by_helm, of_kind, one, part, tool

import cluster_agent.telemetry
import global_learner.telemetry
from deploy.packaging.dashboards import dashboards

Json = dict[str, Any]
ALERTS = DEPLOY / "alerts"
RULES: list[Json] = [
    rule
    for group in yaml.safe_load((ALERTS / "fedl2.rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARDS = {name: json.loads(text) for name, text in dashboards().items()}
CURVES = [
    (found["uid"], panel["title"], target)
    for found in DASHBOARDS.values()
    for panel in found["panels"]
    for target in panel["targets"]
]
SAMPLE = re.compile(r"\b(fedl2_[a-z_]+)(?:\{([^}]*)\})?")
FROM_THE_SCRAPE = {"instance", "le"}


def labels_by_sample() -> dict[str, set[str]]:
    """Names that a query may use, and their labels."""
    found: dict[str, set[str]] = {}
    for telemetry in (cluster_agent.telemetry.AgentTelemetry(), global_learner.telemetry.LearnerTelemetry()):
        registry: CollectorRegistry = telemetry.registry
        for name, metric in registry._names_to_collectors.items():
            if isinstance(metric, MetricWrapperBase):
                found[name] = set(metric._labelnames)
    return found


KNOWN = labels_by_sample()
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in RULES]
EXPRESSIONS += [(f"{uid}: {title}", target["expr"]) for uid, title, target in CURVES]


def test_counters_of_single_events_are_there_with_nothing_from_the_start() -> None:
    single = {name for rule in RULES for name in re.findall(r"or \((\w+_total)\b[^>]* > 0 and on", rule["expr"])}
    assert len(single) == 4
    registries = (
        cluster_agent.telemetry.AgentTelemetry().registry,
        global_learner.telemetry.LearnerTelemetry().registry,
    )
    samples = [sample for registry in registries for metric in registry.collect() for sample in metric.samples]
    assert {sample.name for sample in samples if sample.name in single} == single
    assert {sample.value for sample in samples if sample.name in single} == {0.0}


def test_there_are_metrics_to_compare_with() -> None:
    assert KNOWN["fedl2_agent_learner_calls_total"] == {"method", "outcome"}
    assert "fedl2_agent_decide_seconds_bucket" in KNOWN


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_expressions_are_of_metrics_and_labels_that_there_are(where: str, expression: str) -> None:
    samples = SAMPLE.findall(expression)
    assert samples
    for name, selector in samples:
        assert name in KNOWN
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= KNOWN[name] | FROM_THE_SCRAPE
    grouped = {label.strip() for each in re.findall(r"by \(([^)]*)\)", expression) for label in each.split(",")}
    assert grouped <= set.union(*(KNOWN[name] for name, _ in samples)) | FROM_THE_SCRAPE


def test_values_of_labels_are_those_that_the_agent_gives() -> None:
    from cluster_agent.guard import Intervention

    words = {
        word for rule in RULES for found in re.findall(r'reason=~?"([^"]*)"', rule["expr"]) for word in found.split("|")
    }
    assert words
    assert words <= {intervention.value for intervention in Intervention}


@pytest.mark.parametrize(("uid", "title", "target"), CURVES, ids=[f"{uid}-{title}" for uid, title, _ in CURVES])
def test_the_legend_names_labels_of_the_curve(uid: str, title: str, target: Json) -> None:
    ((name, _), *_) = SAMPLE.findall(target["expr"])
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= KNOWN[name] | {"instance"}


def test_dashboards_lie_where_they_are_made_and_do_not_overlap() -> None:
    there = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (DEPLOY / "dashboards").iterdir()}
    assert there == DASHBOARDS, "run `make chart`"
    for found in DASHBOARDS.values():
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found["panels"]]
        assert len(set(places)) == len(places) == len({panel["id"] for panel in found["panels"]})
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in found["panels"])


def promtool(*words: str | Path) -> None:
    done = subprocess.run(
        [tool("promtool", "prometheus"), *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_alerts() -> None:
    promtool("check", "rules", ALERTS / "fedl2.rules.yaml")


@pytest.mark.heavy
def test_alerts_are_raised_when_they_should_be_and_not_otherwise() -> None:
    promtool("test", "rules", ALERTS / "fedl2.test.yaml")


def test_every_alert_is_tested_both_ways() -> None:
    cases = yaml.safe_load((ALERTS / "fedl2.test.yaml").read_text(encoding="utf-8"))["tests"]
    asked = [(each["alertname"], bool(each["exp_alerts"])) for case in cases for each in case["alert_rule_test"]]
    assert set(asked) == {(rule["alert"], raised) for rule in RULES for raised in (False, True)}


def test_prometheus_takes_the_dashboards_expressions(tmp_path: Path) -> None:
    rules = [
        {"record": f"curve:{number}", "expr": target["expr"].replace("$__rate_interval", "5m")}
        for number, (_, _, target) in enumerate(CURVES)
    ]
    path = tmp_path / "curves.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "curves", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", path)


def test_the_chart_brings_them_where_operators_look() -> None:
    beside = {"learner": LEARNER}
    labelled = MONITORED | {"rules": {"enabled": True, "labels": {"release": "prometheus"}}}
    objects = by_helm({**beside, "monitoring": labelled})
    rule = one(objects, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert [found for group in rule["spec"]["groups"] for found in group["rules"]] == RULES
    shown = [found for found in of_kind(objects, "ConfigMap") if found["metadata"]["labels"].get("grafana_dashboard")]
    assert {name: json.loads(text) for found in shown for name, text in found["data"].items()} == DASHBOARDS
    for component in ("agent", "learner"):
        monitor = one(part(objects, component), "ServiceMonitor")["spec"]
        wanted = monitor["selector"]["matchLabels"].items()
        (service,) = [each for each in of_kind(objects, "Service") if wanted <= each["metadata"]["labels"].items()]
        assert [each["port"] for each in monitor["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]
    assert of_kind(by_helm({}), "ServiceMonitor", "PrometheusRule") == []


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_has_an_entry_in_the_runbook(rule: Json) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (DEPLOY.parent / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_runbook_has_no_entry_of_an_alert_that_is_gone() -> None:
    text = (DEPLOY.parent / "docs/guide/runbook.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in RULES]
