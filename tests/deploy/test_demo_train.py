"""The demonstration of real jobs from its command to its page, small, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.scripts.script_folder import ScriptChange, ScriptChanges, ScriptFolder, ScriptRecord
from deploy.demonstration.processes import VARIABLE
from deploy.train.jobs import ARRIVALS, arrivals, free_cores, share_of_work
from deploy.train.story import resizes
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, write_json
from elastic_runtime.launcher.job_status import status_record
from elastic_runtime.protocol.plan import JobPhase
from foundation.kinship import marked_processes

ROOT = Path(__file__).parents[2]


DEMO_TRAIN = [sys.executable, "-m", "deploy.train", "--work", "0.05", "--seconds", "1200"]


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO_TRAIN, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_real_jobs_train_and_are_told_of(tmp_path: Path) -> None:
    demo = started(tmp_path, "--jobs", "3")
    said, complaints = demo.communicate(timeout=1400)
    assert demo.returncode == 0, said + complaints
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    names = ["gpt-long", "digits-short", "tabular-short"]
    assert [(job["name"], job["state"]) for job in summary["jobs"]] == [(name, "done") for name in names]
    assert all(job["samples"] > 0 and job["loss"] is not None for job in summary["jobs"])
    assert [job["accuracy"] is None for job in summary["jobs"]] == [True, False, False]
    assert summary["jobs"][1]["samples"] == 3 * 1437, "three epochs of its pictures, none lost and none twice"
    assert summary["decisions"] > 2
    assert summary["acting_versions"][0] == 1
    assert summary["stall_share"] < 0.1
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert "3 jobs shared" in page
    assert page.count("<script") == 2, "its content and its own script"
    for name in names:
        assert page.count(name) > 2
    assert "demo-train" not in complaints, "no error line"
    assert left_of(tmp_path / "run-train") == []


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_demonstration_that_is_ended_leaves_no_job_running(tmp_path: Path, number: int) -> None:
    demo = started(tmp_path, "--jobs", "1")
    run = tmp_path / "run-train"
    wait_until(lambda: any(holder_of(run / "agent/jobs" / name) for name in ("gpt-long",)), "its job has a launcher")
    assert len(left_of(run)) >= 3, "a learner, an agent, a launcher"
    demo.send_signal(number)
    _, complaints = demo.communicate(timeout=600)
    assert demo.returncode != 0
    assert "Traceback" not in complaints
    wait_until(lambda: left_of(run) == [], "all is ended")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 600.0
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def left_of(folder: Path) -> list[int]:
    return marked_processes(VARIABLE, f"{folder.resolve()}#", prefix=True)


def test_on_a_busy_machine_jobs_get_less_work_and_never_none() -> None:
    assert share_of_work(2.0) == share_of_work(64.0) == 1.0
    assert 0.3 < share_of_work(1.2) < 0.7
    assert share_of_work(0.0) == share_of_work(0.5) == 0.05
    assert 0.0 < free_cores(1) <= 1.01


def test_a_core_whose_probe_was_killed_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.train.jobs._PROBE", "import os; os.kill(os.getpid(), 9)")
    assert free_cores(2) == 0.0


def test_jobs_come_in_their_order_with_the_share_of_work_that_is_asked_for() -> None:
    chosen = arrivals(4, 0.1)
    assert [job.name for job in chosen] == ["gpt-long", "digits-short", "tabular-short", "gpt-short"]
    assert [job.epochs for job in chosen] == [1, 6, 8, 1]
    assert chosen[1].after_seconds == ARRIVALS[1].after_seconds / 2
    assert all(check_job(job.file(2), ROOT, "it").elastic for job in ARRIVALS)


def test_what_became_of_sizes_is_told_of_both_kinds_of_jobs(tmp_path: Path) -> None:
    servers, ring = JobFolder(tmp_path / "servers"), ScriptFolder(tmp_path / "ring")
    servers.path.mkdir()
    write_json(servers.record_file, {"workers": 1, "servers": 1})
    rows = [("a", 2, 1, "done"), ("b", 2, 1, "done"), ("c", 3, 1, "aborted"), ("d", 0, 0, "done"), ("e", 1, 1, "done")]
    requests = tuple(
        RequestState(
            name, "resize", RequestOutcome(state), target=Size(ps, workers),
            began_unix_seconds=100.0 + number, ended_unix_seconds=100.5 + number, stall_seconds=0.001,
        )
        for number, (name, workers, ps, state) in enumerate(rows)
    )  # fmt: skip
    write_json(servers.state_file, status_record(JobStatus("servers", JobPhase.RUNNING, requests=requests, loss=0.0)))
    ring.make()
    ring.write(ScriptRecord(python="p", script=Path("s"), workdir=tmp_path, elastic=True))
    change = {"request_id": "1", "before": 1, "workers": 2, "began_unix_seconds": 99.0, "ended_unix_seconds": 103.0}
    ring.write(ScriptChanges(changes=(ScriptChange(**change, done=True, stall_seconds=4.0),)))
    found = resizes(tmp_path, ["servers", "ring", "never-started"])
    assert [(row.job, row.before, row.workers, row.live, row.suspends) for row in found] == [
        ("ring", (1, 0), 2, True, False),
        ("servers", (1, 1), 2, True, False),
        ("servers", (2, 1), 3, True, False),  # which did not come about, as it says
        ("servers", (2, 1), 0, False, True),
        ("servers", (0, 0), 1, False, False),
    ]
    assert [row.done for row in found] == [True, True, False, True, True]
    assert found[0].by_checkpoint
    assert not found[1].by_checkpoint
