"""The contract, on every engine of trials; Ray's only where Ray is installed."""

import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from engine_suite import MARK, EngineContract, echo, hang, hang_the_first_time, tasks

from policy_net.errors import BadInput
from policy_net.laboratory.task_processes import usable_cores
from policy_net.laboratory.tuning.engine import ADDRESS, Engine, LocalEngine, RayEngine, check_answers
from policy_net.laboratory.tuning.study_file import TrialReport
from policy_net.laboratory.tuning.trial import TrialTask

Work = Callable[[TrialTask], TrialReport]
HAS_RAY = importlib.util.find_spec("ray") is not None
RAY_IS_REQUIRED = bool(os.environ.get("FEDL2_RAY_REQUIRED"))
"""Where these tests may not be skipped."""
needs_ray = pytest.mark.skipif(
    not HAS_RAY and not RAY_IS_REQUIRED, reason="Ray is not installed: pip install 'fedl2[ray]'"
)
HERE = Path(__file__).parent
DEADLINE_SECONDS = 120.0


@pytest.mark.heavy
class TestLocal(EngineContract):
    def make(self, processes: int, work: Work) -> Engine:
        if processes > usable_cores():
            pytest.skip("one core only")
        return LocalEngine(processes, work)


@pytest.fixture
def _ray_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray begins a cluster on this machine, whose processes find the module of what they are to do."""
    for name in (ADDRESS, "RAY_CLIENT_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture(scope="class")
def ray_cluster() -> Iterator[str]:
    """Where a cluster answers that was there before: to begin one takes longer than most tests.

    In a folder of its own, which names sockets and so is short: nobody who begins one of their own comes upon it.
    """
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory(prefix="ray-") as folder:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("PYTHONPATH", str(HERE))
        # Ray notes the cluster's address in its usual folder too, which it makes only for one that it begins itself.
        (Path(tempfile.gettempdir()) / "ray").mkdir(exist_ok=True)
        head = {"num_cpus": 2, "include_dashboard": False, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster.address
        cluster.shutdown()


@pytest.mark.heavy
@needs_ray
class TestRay(EngineContract):
    @pytest.fixture(autouse=True)
    def _on_that_cluster(self, ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_CLIENT_MODE", raising=False)
        monkeypatch.setenv(ADDRESS, ray_cluster)

    def make(self, processes: int, work: Work) -> Engine:
        return RayEngine(processes, work, environment=os.environ)

    def test_a_trial_that_hangs_is_ended_and_has_failed(self) -> None:
        engine = RayEngine(1, hang, longest_seconds=1.0)
        try:
            assert list(engine.reports(tasks(1))) == [(0, TrialReport(failure="it did not end in time"))]
        finally:
            engine.close()


@pytest.mark.heavy
@needs_ray
@pytest.mark.usefixtures("_ray_cluster_of_its_own")
def test_a_trial_whose_process_is_killed_from_outside_is_begun_anew_on_a_cluster_that_ray_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path / "begun"))
    with closing(RayEngine(1, hang_the_first_time)) as engine, ThreadPoolExecutor(1) as other:
        killed = other.submit(_kill_who_begins, tmp_path / "begun")
        found = list(engine.reports(tasks(1)))
        assert killed.result(DEADLINE_SECONDS)
    assert found == [(0, echo(tasks(1)[0]))]


def _kill_who_begins(mark: Path) -> bool:
    """Whether a process wrote its number there, and was ended."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if mark.exists() and (text := mark.read_text()):
            os.kill(int(text), signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


@pytest.mark.heavy
@needs_ray
@pytest.mark.usefixtures("_ray_cluster_of_its_own")
def test_rays_processes_end_with_a_program_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "begun"
    monkeypatch.setenv(MARK, str(mark))
    script = tmp_path / "hanging.py"
    script.write_text(HANGING_IN_RAY)
    with subprocess.Popen([sys.executable, str(script), str(HERE)]) as program:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        trial = int(mark.read_text())
        assert trial != program.pid
        program.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while _runs(trial):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(process: int) -> bool:
    """Whether there is such a process; one that nobody has asked after yet is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("form", ["{}", "ray://{}"])
def test_a_cluster_that_nobody_answers_for_is_one_line_that_says_where(form: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = form.format(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(BadInput, match=f"no cluster answers at RAY_ADDRESS={address} .*leave RAY_ADDRESS out"):
            check_answers(address)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "..:6379", "no-such-machine.invalid:6379"])
def test_a_cluster_at_a_place_that_cannot_be_is_refused_as_well(address: str) -> None:
    with pytest.raises(BadInput, match="no cluster answers"):
        check_answers(address)


@pytest.mark.parametrize("address", ["", "auto", "local", "not an address"])
def test_what_names_no_machine_is_rays_to_read(address: str) -> None:
    check_answers(address)


@pytest.mark.heavy
@needs_ray
def test_an_address_that_ray_cannot_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "not-an-address")
    with pytest.raises(BadInput, match=r"its cluster does not answer .*not-an-address.*; look at RAY_ADDRESS"):
        RayEngine(environment=os.environ)


def test_ray_that_is_not_installed_is_one_line_that_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not
    with pytest.raises(BadInput, match=r"pip install 'fedl2\[ray\]'"):
        RayEngine()


def test_more_processes_than_cores_are_refused() -> None:
    with pytest.raises(BadInput, match="use at most"):
        LocalEngine(usable_cores() + 1, echo)


@pytest.mark.heavy
def test_a_trial_that_hangs_is_ended_and_has_failed(monkeypatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.task_processes._POLL_SECONDS", 0.1)
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
from policy_net.laboratory.tuning.engine import LocalEngine
if __name__ == "__main__":
    list(LocalEngine(1, tell_and_hang).reports(tasks(1)))
"""

HANGING_IN_RAY = """
import sys
sys.path.insert(0, sys.argv[1])
from engine_suite import hang_the_first_time, tasks
from policy_net.laboratory.tuning.engine import RayEngine
list(RayEngine(1, hang_the_first_time).reports(tasks(1)))
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
