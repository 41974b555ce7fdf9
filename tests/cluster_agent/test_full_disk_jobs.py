"""A real agent whose files may grow no more, as on a full disk: it says so, loses nothing, and goes on with room."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from counted_training import job_content, let_go, problem_of
from killed_machine import Machine

from cluster_agent.recording.log_reading import log_files
from cluster_agent.recording.log_replay import Replayer, default_finder

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")]


def files_may_grow(machine: Machine, *, may: bool) -> None:
    hard = resource.RLIM_INFINITY
    resource.prlimit(machine.agent, resource.RLIMIT_FSIZE, (hard if may else 0, hard))


def type_submit(machine: Machine, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster_agent.cli", "submit", "--name", name, "--", "python", "plain.py", name],
        cwd=machine.folder,
        env=os.environ | {"CLUSTER_AGENT_SOCKET": str(machine.socket)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_was_taken_is_done_what_was_refused_is_told_and_all_goes_on_with_room(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        for name in ("first", "held"):
            machine.submit(job_content("script", name))
            machine.wait_for(lambda name=name: machine.trains(name), f"{name} runs")  # type: ignore[misc]
        files_may_grow(machine, may=False)
        refused = type_submit(machine, "late")
        assert refused.returncode == 2
        assert refused.stderr == "cluster-agent: it cannot be kept (File too large); free space\n"
        assert machine.facts("late")["state"] == ""
        assert not list((tmp_path / "state" / "submitted").glob("late*"))
        let_go(tmp_path, "first")
        machine.wait_for(lambda: not machine.processes("first"), "its processes end meanwhile")
        assert machine.answers()
        assert machine.trains("held"), "who trains does not notice"
        files_may_grow(machine, may=True)
        machine.wait_for(lambda: bool(machine.facts("first").get("ended")), "what has ended is noted")
        assert type_submit(machine, "late").returncode == 0
        for name in ("held", "late"):
            let_go(tmp_path, name)
            machine.wait_for(lambda name=name: bool(machine.facts(name).get("ended")), f"{name} ends")  # type: ignore[misc]
        for name in ("first", "held", "late"):
            assert machine.facts(name)["state"] == "done"
            assert problem_of(tmp_path, "script", name) == ""
        assert machine.problems == []
    replayer = Replayer(default_finder(tmp_path / "state", []))
    for path in log_files(tmp_path / "state"):
        for _ in replayer.replay(path):
            pass
    assert replayer.result.decisions > 0
    assert not replayer.result.different
