"""A demonstration that is killed leaves nothing running, whatever its programs started in sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.demonstration.processes import VARIABLE, Guardian, end_leftovers
from foundation.kinship import marked_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 120.0
PROGRAM = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
time.sleep(1000)
"""
DEMO = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, also where the tests run under nohup
from pathlib import Path
from deploy.demonstration.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    processes.start("program", "program", [])
    time.sleep(1000)
"""


def left_of(folder: Path) -> list[int]:
    return marked_processes(VARIABLE, f"{folder.resolve()}#", prefix=True)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_of_a_demonstration_that_was_ended_by_a_signal(tmp_path: Path, number: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: len(left_of(tmp_path)) == 2)
    demo.send_signal(number)
    demo.wait(DEADLINE_SECONDS)
    wait_until(lambda: not left_of(tmp_path))


def _marked(mark: str) -> subprocess.Popen[bytes]:
    code = "import time; time.sleep(1000)"
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, VARIABLE: mark})


def test_a_guardian_ends_its_own_run_only_and_the_next_run_whatever_nobody_guarded(tmp_path: Path) -> None:
    guardian, other = Guardian(tmp_path), Guardian(tmp_path)
    (tmp_path / "sub").mkdir()
    mine, theirs, elsewhere = _marked(guardian.mark), _marked(other.mark), _marked(f"{tmp_path / 'sub'}#1")
    try:
        wait_until(lambda: len(left_of(tmp_path)) == 2)
        guardian.release()
        assert mine.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert theirs.poll() is None, "a run that follows in the same folder is not touched"
        assert end_leftovers(tmp_path) == 1
        assert theirs.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert elsewhere.poll() is None
    finally:
        for process in (mine, theirs, elsewhere):
            process.kill()
            process.wait()
        other.release()
