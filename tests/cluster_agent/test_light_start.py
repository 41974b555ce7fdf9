"""An agent loads the simulator only where its configuration names it."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "policy_net.laboratory.simulation",
    "policy_net.laboratory",
    "policy_net.gym",
    "matplotlib",
    "gymnasium",
    "torch",
)


def loaded_after(statements: str) -> list[str]:
    """Modules of a fresh interpreter that has run these statements."""
    program = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
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


def test_a_command_about_jobs_loads_no_scheduler() -> None:
    heavy = ("numpy", "scipy", "pydantic", "policy_net", "cluster_agent.backends", "elastic_runtime")
    assert [name for name in loaded_after("import cluster_agent.cli") if name.startswith(heavy)] == []
