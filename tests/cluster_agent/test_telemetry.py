import io
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import structlog

from cluster_agent.errors import BadAgentConfig
from cluster_agent.settings import AgentTelemetrySettings
from cluster_agent.telemetry import AgentTelemetry, Health, configure_logging


def healthy() -> Health:
    return Health(60.0, lambda: 0.0, lambda: "")


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_are_answered_beside_the_metrics_and_say_why_not() -> None:
    now, why = [100.0], ["pods could not be read yet"]
    health = Health(60.0, lambda: now[0], lambda: why[0])
    port = AgentTelemetry().serve(AgentTelemetrySettings(metrics_port=0), health)
    assert port is not None
    assert asked(port, "/healthz") == (200, "ok\n"), "who has not begun is not late"
    assert asked(port, "/readyz") == (503, "pods could not be read yet\n")
    health.turned()
    why[0] = ""
    assert asked(port, "/readyz") == (200, "ok\n")
    now[0] += 61.0
    silent = (503, "the decision loop has not turned for 61 s\n")
    assert asked(port, "/healthz") == asked(port, "/readyz") == silent
    assert "fedl2_agent_decisions_total" in asked(port, "/metrics")[1]


def test_metrics_are_served_under_their_names() -> None:
    telemetry = AgentTelemetry()
    telemetry.interventions.labels("nan").inc()
    port = telemetry.serve(AgentTelemetrySettings(metrics_port=0), healthy())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'fedl2_agent_guard_interventions_total{reason="nan"} 1.0' in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert all(name.startswith("fedl2_agent_") for name in names)


def test_no_port_is_opened_unless_asked_for() -> None:
    assert AgentTelemetry().serve(AgentTelemetrySettings(), healthy()) is None


def test_a_port_in_use_is_bad_configuration() -> None:
    port = AgentTelemetry().serve(AgentTelemetrySettings(metrics_port=0), healthy())
    with pytest.raises(BadAgentConfig, match=f"metrics_port {port}"):
        AgentTelemetry().serve(AgentTelemetrySettings(metrics_port=port), healthy())


def test_log_lines_are_json_off_a_terminal_with_tracebacks() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    log = structlog.get_logger()
    log.debug("unseen")
    log.info("decision", number=3)
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        log.exception("fault")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["decision", "fault"]
    assert lines[0]["number"] == 3
    assert "ZeroDivisionError: " in lines[1]["exception"]


def test_log_lines_are_for_people_where_that_is_said_and_without_colours_off_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", stream, for_people=True)
    structlog.get_logger().warning("key-exposed", file="alpha.key")
    line = stream.getvalue()
    assert "key-exposed" in line
    assert "file=alpha.key" in line
    assert not line.startswith("{")
    assert "\x1b" not in line


def test_an_agent_that_does_not_learn_never_imports_torch() -> None:
    program = "import cluster_agent.cli, cluster_agent.learning.trainer, sys; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False).returncode == 0
