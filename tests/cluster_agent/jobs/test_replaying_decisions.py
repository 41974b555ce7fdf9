"""What a machine's agent decided becomes a workload, and other policies say what they would have made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deciding import Deciding, submit
from job_shell import Shell
from local_world import SAMPLES_PER_EPOCH, SAMPLES_PER_WORKER_SECOND

from foundation.command_line import run
from policy_net.cli import app
from policy_net.errors import BadInput
from policy_net.laboratory.logged import logged_decisions, speeds_of_decisions
from policy_net.laboratory.workloads.decided import read_recorded


@pytest.fixture
def log(shell: Shell) -> Path:
    """Of a machine on which one job was done, one still runs, and one was cancelled."""
    deciding = Deciding(shell, "set")
    submit(shell, "short", "--epochs", "4")
    submit(shell, "gone", "--epochs", "90")
    deciding.once()
    shell.type("cancel", "gone")
    submit(shell, "long", "--epochs", "40")
    for _ in range(5):
        deciding.once()
    deciding.recorder.close()
    return shell.folder


def test_jobs_have_the_work_that_they_did_or_said_and_what_was_taken_away_is_left_out_and_said(log: Path) -> None:
    workload = read_recorded(log).workload
    assert {job.job_id: round(job.total_epochs, 3) for job in workload.jobs} == {"short": 4.0, "long": 40.0}
    assert workload.jobs[0].submit_time_seconds == 0.0
    assert workload.jobs[0].worker_demand.cpu_milli == 1000
    assert "1 jobs left out" in workload.notes[-1]
    assert "1 node of 6 CPU and 0 GPU" in workload.notes[1]


def test_speeds_are_those_that_the_log_shows(log: Path) -> None:
    job = read_recorded(log).workload.jobs[0]
    seen = speeds_of_decisions(log).grid(job.job_type)
    assert seen[1, 1] == pytest.approx(SAMPLES_PER_WORKER_SECOND, rel=0.5)
    assert job.samples_per_epoch == pytest.approx(SAMPLES_PER_EPOCH)


def test_what_jobs_did_is_in_the_log_also_of_a_policy_that_learns_nothing(shell: Shell) -> None:
    deciding = Deciding(shell, "fifo")
    submit(shell, "long", "--epochs", "400", "--workers", "1-2")
    for _ in range(3):
        deciding.once()
    deciding.recorder.close()
    reported = [entry for logged in logged_decisions(shell.folder) for entry in logged.observed]
    assert [entry.paused_seconds > 1.0 for entry in reported] == [True, False], "a start is no training"
    assert all(
        entry.samples / entry.seconds == pytest.approx(10.0 * entry.allocation.workers, rel=0.1) for entry in reported
    )


def test_replay_takes_it_with_any_policy(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"decisions:{log}"
    words = ["replay", "--workload", source, "--speeds", source, "--cpus-per-node", "6", "--gpus-per-node", "0"]
    words += ["--slot-seconds", "10", "--debounce-seconds", "1", "--policy", "fifo", "--policy", "set", "-o", "json"]
    capsys.readouterr()
    assert run(app, "policy-net", words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["policy"], row["completed"]) for row in rows] == [("fifo", 2), ("set", 2)]


def test_a_folder_without_decisions_and_a_changed_line_are_said_in_one(log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no decision; name an agent's state directory"):
        read_recorded(tmp_path / "empty")
    path = log / "decisions.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace('"short"', '"shirt"'), *lines[2:], ""]), encoding="utf-8")
    with pytest.raises(BadInput, match="line 2"):
        read_recorded(log)
