"""Folders of jobs whose scripts did to them what no script should: the agent, the others and `cancel` go on.

Real processes: nothing here may make anybody wait for ever, which only they would show.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from counted_training import job_content
from killed_machine import Machine

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform != "linux", reason="marks of processes are Linux's")]


def emptied(job: Path) -> None:
    (job / "job.json").write_bytes(b"")


def locked_out(job: Path) -> None:
    (job / "lock").unlink()
    (job / "lock").mkdir()


def with_pipes(job: Path) -> None:
    for name in ("state.json", "coordinator.json", "progress.json", "logs/worker-0.log"):
        (job / name).unlink(missing_ok=True)
        os.mkfifo(job / name)


def removed(job: Path) -> None:
    shutil.rmtree(job, ignore_errors=True)  # its processes may be writing there


def linked(job: Path) -> None:
    job.rename(job.with_name("real"))
    shutil.copytree(job.with_name("real"), job.with_name("other"), ignore=lambda *_: ["control"])
    job.symlink_to(job.with_name("other"))


def all_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("kind", "damage", "said"),
    [
        ("ps", emptied, "job.json: is no record of a job; remove"),
        ("ring", locked_out, "lock: cannot be used (it is a folder"),
        ("ps", with_pipes, ""),
        ("ring", with_pipes, "state.json: cannot be read: it is a pipe"),
        ("script", removed, "the job's folder is gone"),
        ("ps", linked, "it is a link, which is not followed"),
        ("ring", linked, "it is a link, which is not followed"),
    ],
)
def test_a_job_that_damages_its_folder_harms_itself_alone_and_can_be_cancelled(
    tmp_path: Path, kind: str, damage: Callable[[Path], None], said: str
) -> None:
    with Machine(tmp_path, patience_seconds=200.0) as machine:
        for name, of in (("good", "script"), ("bad", kind)):
            machine.submit(job_content(of, name))
            machine.wait_for(lambda name=name: machine.trains(name), f"{name} runs")  # type: ignore[misc]
        damage(machine.jobs_folder / "bad")
        kept = all_in(machine.jobs_folder / "other")
        machine.kill("", "agent")  # another one follows
        machine.wait_for(machine.answers, "an agent begins in spite of it")
        machine.wait_for(lambda: said in machine.facts("bad")["note"], f"its note says {said!r}")
        for words in (["jobs"], ["job", "bad"], ["logs", "bad"], ["explain", "bad"], ["cancel", "bad"]):
            done = subprocess.run(
                [sys.executable, "-m", "cluster_agent.cli", *words],
                env=os.environ | {"CLUSTER_AGENT_SOCKET": str(machine.socket)},
                capture_output=True,
                text=True,
                check=False,
                timeout=250.0,
            )
            assert "Traceback" not in done.stderr
            assert done.returncode == 0 or (words[0] == "cancel" and "has failed" in done.stderr), done.stderr
        machine.wait_for(lambda: bool(machine.facts("bad").get("ended")), "it is cancelled")
        machine.wait_for(lambda: not machine.processes("bad"), "nothing of it runs")
        assert machine.trains("good")
        assert machine.problems == []
        assert all_in(machine.jobs_folder / "other") == kept, "nothing is written through a link"
