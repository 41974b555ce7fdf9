"""A real job whose blocks have two holders: parameter servers are killed, and no step is done again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_jobs import DIGITS, RealJob

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    with RealJob(tmp_path, "twice") as job:
        yield job
    job.leaves_nobody()


def twice_held(status: dict[str, Any]) -> bool:
    return status["phase"] == "running" and status["blocks_with_replica"] == status["blocks"] > 0


def test_killed_servers_undo_no_step(job: RealJob) -> None:
    words = ["--ps", "2", "--workers", "2", "--replicas", "2", "--name", job.name]
    job.launch(*words, str(DIGITS), "--epochs", "100000")
    job.wait_for("two holders", twice_held)
    before = job.steps_on()
    job.kill("ps-0")
    lost = job.wait_for("loss", lambda status: "ps-0" not in job.members(status)["server"])
    assert lost["step"] >= before["step"]
    status = job.wait_for("another holder", lambda status: twice_held(status) and status["size"]["ps"] == 2)
    assert status["generation"] == 1
    assert status["step"] >= lost["step"]
    assert job.members(status)["server"] == ["ps-1", "ps-2"]
    job.kill("ps-1")  # the one that had been there from the beginning: the new copy is the only one now
    status = job.wait_for("third holder", lambda status: "ps-3" in job.members(status)["server"])
    assert status["generation"] == 1
    last = job.steps_on()
    assert (last["generation"], last["phase"]) == (1, "running")
    assert job.ask("stop")["stopped"]
    assert job.end() == 0, job.output()
    assert job.ask("status")["durable_step"] >= last["step"]
