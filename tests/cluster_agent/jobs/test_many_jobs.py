"""Hundreds of jobs on one machine: all are kept, listed and decided about, and no more run than there is room for."""

from __future__ import annotations

import time

import pytest
from deciding import Deciding
from job_shell import Shell

from cluster_agent.backends.local.job_table import JobTable
from cluster_agent.jobs.client import JobClient

JOBS = 500


@pytest.mark.heavy
@pytest.mark.parametrize("policy", ["fifo", "drf", "set"])
def test_five_hundred_jobs_wait_and_every_decision_fits(shell: Shell, policy: str) -> None:
    began = time.perf_counter()
    client = JobClient(shell.socket, timeout_seconds=300.0)
    for number in range(JOBS):
        job = {"modelType": f"mlp-{number % 7}", "script": "train.py", "work": {"epochs": 90}}
        client.call("submit", {"job": job, "folder": str(shell.folder), "source": "job.yaml"})
    submitted = time.perf_counter() - began
    found = client.call("jobs", {})["jobs"]
    listed = time.perf_counter() - began - submitted
    assert len({job["name"] for job in found}) == JOBS
    assert sum(1 for _ in JobTable(shell.folder / "submitted")) == JOBS
    assert len(shell.type("jobs").out.splitlines()) == JOBS + 2, "below a heading and a rule"
    deciding = Deciding(shell, policy)
    began = time.perf_counter()
    for _ in range(3):
        deciding.once()  # the simulated machine fails the test if more is given away than it has
    decided = time.perf_counter() - began
    states = [job["state"] for job in shell.type("jobs", "-o", "json").json]
    assert 0 < states.count("running") <= 6
    assert states.count("queued") + states.count("running") + states.count("suspended") == JOBS
    print(f"{policy}: {JOBS} submitted in {submitted:.2f} s, listed in {listed:.3f} s, 3 decisions in {decided:.2f} s")
