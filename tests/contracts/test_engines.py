"""The contract, on every engine of trials; Ray's only where Ray is installed."""

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_suite import EngineContract, echo, hang, tasks

from policy_net.errors import BadInput
from policy_net.laboratory.task_processes import usable_cores
from policy_net.laboratory.tuning.engine import Engine
from policy_net.laboratory.tuning.local_engine import LocalEngine
from policy_net.laboratory.tuning.ray_engine import RayEngine
from policy_net.laboratory.tuning.trial import TrialReport, TrialTask

Work = Callable[[TrialTask], TrialReport]
HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.heavy
class TestLocal(EngineContract):
    def make(self, processes: int, work: Work) -> Engine:
        if processes > usable_cores():
            pytest.skip("one core only")
        return LocalEngine(processes, work)


@pytest.mark.heavy
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install 'fedl2[ray]'")
class TestRay(EngineContract):
    def make(self, processes: int, work: Work) -> Engine:
        return RayEngine(processes, work)


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_ray_that_is_not_installed_is_one_line_that_says_how() -> None:
    with pytest.raises(BadInput, match=r"pip install 'fedl2\[ray\]'"):
        RayEngine()


def test_more_processes_than_cores_are_refused() -> None:
    with pytest.raises(BadInput, match="use at most"):
        LocalEngine(usable_cores() + 1, echo)


@pytest.mark.heavy
def test_a_trial_that_hangs_is_ended_and_has_failed(monkeypatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.task_processes._LOOK_SECONDS", 0.1)
    ticks = itertools.count(0.0, 100.0)
    engine = LocalEngine(1, hang, clock=lambda: next(ticks), longest_seconds=50.0)
    try:
        assert list(engine.reports(tasks(1))) == [(0, TrialReport(failure="it did not end in time"))]
    finally:
        engine.close()


HANGING = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
from engine_suite import tasks
from hanging_work import tell_and_hang
from policy_net.laboratory.tuning.local_engine import LocalEngine
if __name__ == "__main__":
    list(LocalEngine(1, tell_and_hang).reports(tasks(1)))
"""


@pytest.mark.heavy
def test_processes_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hanging_work.py").write_text(
        "import os, sys, threading\n\n\ndef tell_and_hang(task):\n"
        "    print(os.getpid(), flush=True)\n    threading.Event().wait()\n"
    )
    script = tmp_path / "hanging.py"
    script.write_text(HANGING)
    words = [sys.executable, str(script), str(Path(__file__).parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert int(program.stdout.readline()) != program.pid
        program.kill()
        # The pipe is the trial's too, which hangs for ever: its end is the trial's end.
        assert program.stdout.read() == ""
