"""The real process: started, killed in the middle of a resize, started again, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reserved_port import ReservedPort

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.protocol.plan import JobPhase

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
PATIENCE_SECONDS = 60.0


class Process:
    """A coordinator's process and its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.said = folder / "stderr"
        self.reserved = ReservedPort()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, silent_seconds: int = 60) -> str:
        """Start it; where it answers, which is always the same.

        Args:
            silent_seconds: who is silent for so long is dead; on a machine that is busy for a while nobody is.
        """
        command = [sys.executable, "-m", "elastic_runtime.coordinator", "--job=digits", f"--folder={self.folder}"]
        command += [f"--checkpoints={self.folder}", f"--token-file={self.token_file}", "--servers=1", "--workers=2"]
        command += [f"--bind={self.reserved.address}", "--checkpoint-seconds=0.5"]
        command += [f"--{what}-seconds={silent_seconds}" for what in ("lost", "silent", "vote", "suspect")]
        address_file = self.folder / "coordinator.json"
        address_file.unlink(missing_ok=True)
        with self.said.open("ab") as said:  # a pipe that nobody reads would hold it up
            self.process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not address_file.exists():
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        content = json.loads(address_file.read_text())
        assert content["pid"] == self.process.pid
        assert content["address"] == self.reserved.address
        return self.reserved.address

    def kill(self, number: signal.Signals) -> int:
        """Signal it and wait for its end; the exit code."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.process.kill()
        process.process.wait(PATIENCE_SECONDS)
    process.reserved.close()


@pytest.mark.heavy
def test_killed_in_a_resize_and_started_again_it_goes_on_where_it_was(
    coordinator: Process, make_launcher: Callable[[str], Any]
) -> None:
    address = coordinator.start()
    launcher = make_launcher(address)
    launcher.until(lambda status: status.phase is JobPhase.RUNNING and status.step > 10)
    launcher.client.resize("grow", Size(2, 3))
    before = launcher.until(lambda status: len(status.tasks) > 3)
    coordinator.kill(signal.SIGKILL)
    coordinator.start()
    status = launcher.until(
        lambda status: any(row.request_id == "grow" and row.state is RequestOutcome.DONE for row in status.requests)
    )
    assert status.generation == before.generation, "nobody went back to a checkpoint"
    assert status.size == Size(2, 3)
    assert launcher.client.resize("grow", Size(2, 3))[0] is RequestOutcome.DONE
    assert coordinator.kill(signal.SIGTERM) == 0


@pytest.mark.heavy
def test_stopped_for_longer_than_its_limits_it_takes_nobody_for_dead(
    coordinator: Process, make_launcher: Callable[[str], Any]
) -> None:
    limit_seconds = 8
    launcher = make_launcher(coordinator.start(limit_seconds))
    before = launcher.until(lambda status: status.phase is JobPhase.RUNNING and status.step > 10)
    assert coordinator.process is not None
    os.kill(coordinator.process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 1.5 * limit_seconds
    while time.monotonic() < deadline:  # the time that the stopped process sees, as it wakes
        launcher.check()
        time.sleep(0.1)
    os.kill(coordinator.process.pid, signal.SIGCONT)
    after = launcher.until(lambda status: all(task.report_age_seconds < 1.0 for task in status.tasks))
    assert [task.task for task in after.tasks] == [task.task for task in before.tasks]
    after = launcher.until(lambda status: status.step > after.step + 10)
    assert (after.generation, after.phase) == (before.generation, JobPhase.RUNNING)
    assert [task.task for task in after.tasks] == [task.task for task in before.tasks]
    assert "coordinator-was-stopped" in coordinator.said.read_text()
    assert coordinator.kill(signal.SIGTERM) == 0


@pytest.mark.heavy
def test_what_cannot_be_used_is_said_in_one_line_with_exit_code_2(coordinator: Process, tmp_path: Path) -> None:
    def refused(*more: str) -> str:
        command = [sys.executable, "-m", "elastic_runtime.coordinator", "--job=digits", f"--folder={tmp_path}"]
        command += [f"--token-file={coordinator.token_file}", "--servers=1", "--workers=2", *more]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]

    assert "0.0.0.0:0 is not loopback" in refused("--bind=0.0.0.0")
    assert refused("--lost-seconds=-1").endswith("--lost-seconds -1.0: must be above 0")
    assert refused("--workers=251").endswith("--workers 251: must be at least 1 and at most 250")
    assert refused("--job=Digits!").endswith(
        "--job Digits!: use lower case letters, digits, dots and dashes, at most 63"
    )
