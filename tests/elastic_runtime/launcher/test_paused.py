"""Real jobs that are stopped and go on, as by Ctrl-Z, a frozen container, or a virtual machine that is moved."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_jobs import DIGITS, RealJob

from elastic_runtime.coordinator.rules.settings import CoordinatorSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LIMIT_SECONDS = CoordinatorSettings(job="any", servers=1, workers=1).silent_seconds


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    with RealJob(tmp_path, "paused") as job:
        yield job
    job.leaves_nobody()


@pytest.mark.parametrize("who", ["all", "coordinator"])
def test_a_job_that_was_stopped_for_longer_than_any_limit_loses_no_step(job: RealJob, who: str) -> None:
    """Its only checkpoint is the one that it began with: whoever lost anybody would begin again."""
    words = ["--ps", "2", "--workers", "2", "--checkpoint-seconds", "3600", "--name", job.name]
    job.launch(*words, str(DIGITS), "--epochs", "100000")
    before = job.steps_on()
    assert job.launcher is not None
    pids = [job.launcher.pid, *job.processes()] if who == "all" else [job.pid_of("coordinator")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5 * LIMIT_SECONDS)  # what is stopped sees no other time
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    after = job.steps_on()
    assert after["step"] > before["step"]
    assert (after["generation"], after["durable_step"]) == (before["generation"], before["durable_step"])
    assert job.members(after) == job.members(before)
    assert job.ask("stop")["stopped"]
    assert job.end() == 0, job.output()
    assert "for dead" not in job.output()
