import io
import json
import os
import subprocess
import sys
import urllib.request

import pytest
import structlog

from cluster_agent.errors import BadConfig
from cluster_agent.settings import TelemetrySettings
from cluster_agent.telemetry import Telemetry, configure_logging


def test_metrics_are_served_under_their_names() -> None:
    telemetry = Telemetry()
    telemetry.interventions.labels("nan").inc()
    port = telemetry.serve(TelemetrySettings(metrics_port=0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'fedl2_agent_guard_interventions_total{reason="nan"} 1.0' in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert all(name.startswith("fedl2_agent_") for name in names)


def test_no_port_is_opened_unless_asked_for() -> None:
    assert Telemetry().serve(TelemetrySettings()) is None


def test_a_port_in_use_is_bad_configuration() -> None:
    port = Telemetry().serve(TelemetrySettings(metrics_port=0))
    with pytest.raises(BadConfig, match=f"metrics_port {port}"):
        Telemetry().serve(TelemetrySettings(metrics_port=port))


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


def test_an_agent_that_does_not_learn_never_imports_torch() -> None:
    program = "import cluster_agent.cli, cluster_agent.learning.trainer, sys; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False).returncode == 0
