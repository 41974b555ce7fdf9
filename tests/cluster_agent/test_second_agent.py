"""A second agent on one machine: refused in a line where it would share a state directory or a socket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from processes import Program, wait_until

from cluster_agent.jobs.client import JobClient


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str, str, str], Path]:
    def configured(name: str, state_dir: str, socket: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        backend = {"kind": "local", "cpu_milli": 1000, "socket": socket}
        content = {"cluster": name, "state_dir": state_dir, "backend": backend, "policy": {"initial": "drf"}}
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return configured


@pytest.fixture
def first(tmp_path: Path, configured: Callable[[str, str, str], Path]) -> Iterator[Program]:
    program = Program("cluster_agent.cli", "run", configured("first", "state", "s/jobs.sock"))
    wait_until((tmp_path / "s" / "jobs.sock").exists, "the agent listens")
    yield program
    program.kill()


@pytest.mark.parametrize(
    ("state_dir", "socket", "said"),
    [
        ("state", "other/jobs.sock", "setting state_dir: {folder}/state is held by another agent (process {first})"),
        ("other", "s/jobs.sock", "setting backend.socket: {folder}/s/jobs.sock is another agent's (process {first})"),
    ],
)
def test_a_second_agent_is_refused_in_a_line_and_the_first_answers_on(
    tmp_path: Path,
    first: Program,
    configured: Callable[[str, str, str], Path],
    state_dir: str,
    socket: str,
    said: str,
) -> None:
    config = configured("second", state_dir, socket)
    command = [sys.executable, "-m", "cluster_agent.cli", "run", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cluster-agent: ")]
    assert said.format(folder=tmp_path, first=first.process.pid) in line
    assert "Traceback" not in done.stderr
    assert JobClient(tmp_path / "s" / "jobs.sock", 150.0).call("jobs", {}) == {"jobs": []}
