"""The demonstration on Kubernetes: jobs applied with kubectl train, and complete though the agent is killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.kube.__main__ import progress_of, resizes_of
from deploy.kube.jobs import arrivals, volumes

MODULE = [sys.executable, "-m", "deploy.kube"]


def test_jobs_come_in_their_order_with_names_of_their_own() -> None:
    planned = arrivals(12, 4)
    moments = [after for after, _ in planned]
    assert moments == sorted(moments)
    assert len({objects[0]["metadata"]["name"] for _, objects in planned}) == 16
    assert [len(objects) for _, objects in planned].count(2) == 4
    kinds = {found["kind"] for _, objects in planned for found in objects}
    assert kinds == {"TrainingJob", "Job", "ElasticTarget"}
    claims = {found["metadata"]["name"] for found in volumes()}
    specs = [found["spec"] for _, objects in planned for found in objects if found["kind"] == "TrainingJob"]
    assert {spec["checkpoints"]["claimName"] for spec in specs} <= claims


def test_resizes_are_of_one_job_s_life() -> None:
    def event(uid: str, kind: str = "TrainingJob", reason: str = "Resized", **more: Any) -> dict[str, Any]:
        about = {"kind": kind, "name": "digits", "namespace": "team", "uid": uid}
        return {"involvedObject": about, "reason": reason, **more}

    jobs = [{"metadata": {"name": "digits", "uid": uid}} for uid in ("now", "plain")]
    events = [event("before"), event("before", count=3), event("now"), event("now", reason="Running")]
    events += [event("plain", "Job", count=2), event("target-of-plain", "ElasticTarget", count=2)]
    assert resizes_of(jobs, events) == {"now": 1, "plain": 2}


def test_jobs_get_on_by_what_they_have_and_did_and_not_by_the_time_that_goes_by() -> None:
    def jobs(seen: str = "10:00", **status: Any) -> tuple[str, ...]:
        one = {"metadata": {"name": "digits", "resourceVersion": seen}, "status": {"seenTime": seen, **status}}
        return progress_of([one, {"metadata": {"name": "count"}, "status": {"active": 1}}])

    running = {"phase": "Running", "workers": 1, "ps": 1}
    still = jobs(**running, progress={"epoch": "3"})
    assert jobs("10:05", **running, progress={"epoch": "3"}) == still
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    further = [jobs(), jobs(**running), still, jobs(**running, progress={"epoch": "4"}), jobs(**running, **complete)]
    assert len(set(further)) == len(further)


def test_without_kubectl_it_says_so_and_starts_nothing(tmp_path: Path) -> None:
    command = [*MODULE, "--run-folder", str(tmp_path / "run"), "--report-folder", str(tmp_path / "report")]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no kubectl on the PATH: install it" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_jobs_complete_and_the_agents_successor_goes_on_with_them(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        if os.environ.get("FEDL2_KUBE_TOOLS_REQUIRED"):
            pytest.fail("no kubectl: install Debian's kubernetes-client")
        pytest.skip("no kubectl: install Debian's kubernetes-client")
    run, report = tmp_path / "run", tmp_path / "report"
    command = [*MODULE, "--training-jobs", "4", "--plain-jobs", "1", "--seconds", "500"]
    command += ["--run-folder", str(run), "--report-folder", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 TrainingJobs, 1 Jobs complete" in done.stdout
    summary = json.loads((report / "kube-summary.json").read_text(encoding="utf-8"))
    assert summary["agentKilledSeconds"] > 0
    for name, status in summary["trainingJobs"].items():
        epochs = float(status["progress"]["totalEpochs"])
        assert (status["phase"], float(status["progress"]["epoch"])) == ("Complete", epochs), name
