"""An agent loads the simulator only where its configuration names it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "policy_net.laboratory.simulation",
    "policy_net.laboratory",
    "policy_net.gym",
    "matplotlib",
    "gymnasium",
    "torch",
)


def loaded_after(statements: str, *words: str) -> list[str]:
    """Modules of a fresh interpreter that has run these statements, with these words as its arguments."""
    program = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120, check=True
    )
    modules: list[str] = json.loads(done.stdout)
    return modules


@pytest.mark.parametrize("module", ["cluster_agent.agent", "cluster_agent.cli"])
def test_an_agents_import_brings_no_simulator_no_charts_and_no_torch(module: str) -> None:
    heavy = [name for name in loaded_after(f"import {module}") if name.startswith(HEAVY)]
    assert heavy == []


def test_the_simulator_comes_with_the_backend_that_a_configuration_names() -> None:
    simulator = ("policy_net.laboratory.", "policy_net.gym.")
    statements = "from cluster_agent.backends.base import backend_module\nbackend_module('simulated')"
    assert any(name.startswith(simulator) for name in loaded_after(statements))


ASKED = """
import contextlib, io, socket, sys, threading
from pathlib import Path
from cluster_agent.cli import app
from cluster_agent.job_messages import ANSWER, encode
from foundation.command_line import run

path = sys.argv[1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
def answer():
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.sendall(encode({ANSWER: {"jobs": []}}))
    connection.close()
threading.Thread(target=answer).start()
with contextlib.redirect_stdout(io.StringIO()):
    assert run(app, "cluster-agent", [*sys.argv[2:], "--socket", path]) == 0
"""


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "--active", "-o", "json"]])
def test_a_command_about_jobs_loads_no_scheduler_no_grpc_and_nothing_that_draws(
    tmp_path: Path, words: list[str]
) -> None:
    heavy = ("numpy", "scipy", "pydantic", "policy_net", "cluster_agent.backends", "elastic_runtime")
    heavy += ("grpc", "asyncio", "rich", "yaml", "structlog", "prometheus_client")
    loaded = loaded_after(ASKED, str(tmp_path / "s"), *words)
    only_errors = {"policy_net", "policy_net.errors"}
    assert [name for name in loaded if name.startswith(heavy) and name not in only_errors] == []
