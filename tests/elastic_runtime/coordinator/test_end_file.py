"""The file in which a coordinator says how its job has ended, for whoever cannot ask it any more."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reserved_port import ReservedPort

from elastic_runtime.control.messages import JobStatus
from elastic_runtime.coordinator.__main__ import write_end
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import JobPhase

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of no job
PATIENCE_SECONDS = 60.0


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """A coordinator's process, its address and the file."""
    (tmp_path / "token").write_text(TOKEN)
    reserved, said, end_file = ReservedPort(), tmp_path / "stderr", tmp_path / "end"
    command = [sys.executable, "-m", "elastic_runtime.coordinator", "--job=digits", f"--folder={tmp_path}"]
    command += [f"--checkpoints={tmp_path}", f"--token-file={tmp_path / 'token'}", "--servers=1", "--workers=1"]
    command += [f"--bind={reserved.address}", f"--end-file={end_file}", "--restarts=0", "--leave-seconds=1"]
    with said.open("ab") as out:
        process = subprocess.Popen(command, stderr=out, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "coordinator.json").exists():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield process, reserved.address, end_file
    if process.poll() is None:
        process.kill()
        process.wait(PATIENCE_SECONDS)
    reserved.close()


@pytest.mark.heavy
def test_a_finished_job_says_what_it_has_trained(
    started: tuple[subprocess.Popen[bytes], str, Path], make_launcher: Callable[[str], Any]
) -> None:
    process, address, end_file = started
    launcher = make_launcher(address)
    launcher.until(lambda status: status.phase is JobPhase.RUNNING)
    assert not end_file.exists(), "of a job that goes on nothing is said"
    launcher.hurry.set()
    launcher.until(lambda status: status.phase is JobPhase.FINISHED)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert end_file.read_text() == f"finished: 1 epochs, {32 * launcher.total_steps} samples\n"


def test_a_failed_job_says_why(
    started: tuple[subprocess.Popen[bytes], str, Path], make_launcher: Callable[[str], Any]
) -> None:
    process, address, end_file = started
    launcher = make_launcher(address)
    launcher.until(lambda status: status.phase is JobPhase.RUNNING)
    launcher.client.task_ended("worker-0", 7, "ValueError: no such\ndata")
    launcher.until(lambda status: status.phase is JobPhase.FAILED)
    process.terminate()  # as a launcher does that has heard of it
    assert process.wait(PATIENCE_SECONDS) == 1
    assert end_file.read_text() == "failed: worker-0: ended with exit code 7: ValueError: no such\n"


def test_one_that_is_stopped_before_the_end_says_nothing(
    started: tuple[subprocess.Popen[bytes], str, Path], make_launcher: Callable[[str], Any]
) -> None:
    process, address, end_file = started
    make_launcher(address).until(lambda status: status.phase is JobPhase.RUNNING)
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == 0
    assert not end_file.exists()


def test_the_file_is_written_in_place_and_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "end"
    path.write_text("before, and longer than what comes")
    number = path.stat().st_ino
    write_end(path, JobStatus("digits", JobPhase.FAILED, failure="two\nlines\x1b[31m"))
    assert path.read_text() == "failed: two lines\\x1b[31m\n"
    assert path.stat().st_ino == number, "in a container it is a mounted file"
    write_end(None, JobStatus("digits", JobPhase.FAILED))


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"how the job has ended cannot be written to .*Is a directory"):
        write_end(tmp_path, JobStatus("digits", JobPhase.FINISHED))
