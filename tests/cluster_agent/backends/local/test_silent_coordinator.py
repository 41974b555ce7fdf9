"""A coordinator that takes calls and never answers is left alone for a while, so that other jobs are looked at."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_processes import ElasticJob
from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from elastic_runtime.launcher.job_folder import JobLock, create, write_json
from elastic_runtime.launcher.job_spec import JobSpec


def waiting_calls(listener: socket.socket) -> int:
    """How many have connected since it was asked last."""
    count = 0
    while True:
        try:
            listener.accept()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.heavy
def test_one_that_let_a_call_wait_is_not_asked_again_at_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import elastic_runtime\n", encoding="utf-8")
    spec = JobSpec(script=script, python=sys.executable, working_folder=tmp_path, servers=1, workers=2)
    folder = create(tmp_path / "jobs", "mute", script, spec.record())
    file = check_job({"modelType": "any", "script": "train.py"}, tmp_path, "it")
    record = LocalJobRecord(name="mute", number=1, file=file, submitted_unix_seconds=0.0)
    now = 100.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # a look at it takes as long as a call that nobody answers
        return now

    job = ElasticJob(tmp_path / "jobs", record, os.environ, Launchers(tmp_path / "jobs"), clock)
    with socket.socket() as listener, JobLock(folder.path):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        write_json(folder.address_file, {"address": f"127.0.0.1:{listener.getsockname()[1]}", "pid": os.getpid()})
        assert not job.measure().fresh
        assert waiting_calls(listener) > 0
        for _ in range(3):
            assert not job.measure().fresh
        assert waiting_calls(listener) == 0
        now += 100.0
        assert not job.measure().fresh
        assert waiting_calls(listener) > 0
