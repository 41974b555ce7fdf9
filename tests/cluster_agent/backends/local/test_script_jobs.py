"""Scripts that do not join, as real processes: they outlive who started them, and end as they should, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import wait_until

from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_processes import ScriptJob
from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.machine_shares import GpuLedger
from elastic_runtime.launcher.gpu_seats import read_used
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

Opened = Callable[..., ScriptJob]
KILLED = "worker-0 was ended by SIGKILL: not by us; the kernel does so where memory runs out"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A script as a job, by an agent that remembers nothing of those before it."""
    names = []

    def open_job(code: str, workers: int = 1, name: str = "job", **more: object) -> ScriptJob:
        names.append(name)
        script = tmp_path / f"{name}.py"
        if not script.exists() or script.read_text(encoding="utf-8") != code:  # a Python may be about to read it
            script.write_text(code, encoding="utf-8")
        content = {"modelType": "any", "script": f"{name}.py", "worker": {"replicas": workers}, **more}
        file = check_job(content, tmp_path, "it")
        record = LocalJobRecord(name=name, number=1, file=file, submitted_unix_seconds=0.0)
        return ScriptJob(tmp_path / "jobs", record, os.environ, Launchers(tmp_path / "jobs"), grace_seconds=0.2)

    yield open_job
    launchers = Launchers(tmp_path / "jobs")
    for name in names:
        number = launchers.running(name)
        if number:
            os.kill(number, signal.SIGKILL)
            wait_until(lambda name=name: launchers.running(name) is None, "the launcher is gone")  # type: ignore[misc]
        launchers.clear(name)


def phase_of(job: ScriptJob) -> JobPhase | None:
    return job.measure().phase


def ended(job: ScriptJob) -> None:
    wait_until(lambda: job.launcher is None, "its launcher ends")


@pytest.mark.parametrize(
    ("code", "phase", "failure"),
    [
        ("print('fine')", JobPhase.FINISHED, ""),
        ("import sys; sys.exit(3)", JobPhase.FAILED, "worker-0 ended with exit code 3"),
        ("raise ValueError('no column')", JobPhase.FAILED, "worker-0 ended with exit code 1: ValueError: no column"),
        ("import os; os.kill(os.getpid(), 9)", JobPhase.FAILED, KILLED),
    ],
)  # fmt: skip
def test_its_exit_code_decides_what_became_of_it(opened: Opened, code: str, phase: JobPhase, failure: str) -> None:
    job = opened(code)
    job.start(Allocation(1))
    ended(job)
    measured = job.measure()
    assert (measured.phase, measured.failure) == (phase, failure)
    assert measured.running == measured.desired == SUSPENDED


def test_it_is_run_by_the_python_that_is_named_and_a_program_by_itself(opened: Opened, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    says = "import sys; print('prefix', sys.prefix, sys.flags.optimize, __name__)"
    (tmp_path / "run").write_text("#!/bin/sh\necho program $1\n", encoding="utf-8")
    (tmp_path / "run").chmod(0o700)
    jobs = {
        f"prefix {tmp_path / 'env'} 0 __main__": opened(says, name="other", interpreter=python),
        f"prefix {sys.prefix} 1 __main__": opened(says, name="optimized", interpreter=["python", "-O"]),
        f"prefix {tmp_path / 'env'} 1 __main__": opened(
            says, name="module", interpreter=[python, "-O", "-m"], script="module"
        ),
        "program 3": opened("", name="run", script="run", args=["3"]),
    }
    for job in jobs.values():
        job.start(Allocation(1))
    for line, job in jobs.items():
        ended(job)
        assert phase_of(job) is JobPhase.FINISHED
        assert line in (job.log_folder / "worker-0.log").read_text(encoding="utf-8")


def test_another_agent_finds_it_running_and_its_end(opened: Opened, tmp_path: Path) -> None:
    code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\nprint('went')"
    opened(code).start(Allocation(1))
    job = opened(code)
    assert job.launcher is not None, "from the first moment on"
    wait_until(lambda: phase_of(job) is JobPhase.RUNNING, "it runs")
    assert job.measure().running == Allocation(1)
    with pytest.raises(BlockingIOError):
        opened(code).start(Allocation(1))  # never twice
    (tmp_path / "go").touch()
    ended(job)
    assert phase_of(job) is JobPhase.FINISHED
    assert (job.log_folder / "worker-0.log").read_text(encoding="utf-8").count("went") == 1


def test_one_that_ignores_sigterm_is_killed_and_one_that_is_held_starts_over(opened: Opened) -> None:
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile 1: time.sleep(1)"
    job = opened(code)
    job.start(Allocation(1))
    log = job.log_folder / "worker-0.log"
    wait_until(lambda: log.exists() and "deaf" in log.read_text(encoding="utf-8"), "it runs")
    wait_until(lambda: phase_of(job) is JobPhase.RUNNING, "its launcher says so")
    assert job.request("1", Allocation(2), resume=False) == "its script has a fixed size"
    assert job.request("2", SUSPENDED, resume=False) == ""
    ended(job)
    assert phase_of(job) is JobPhase.SUSPENDED
    said = (job.log_folder.parents[1] / "job.launcher.log").read_text(encoding="utf-8")
    assert "workers-not-stopped" not in said, "no checkpoint is waited for that never comes"
    job.start(Allocation(1))
    wait_until(lambda: log.read_text(encoding="utf-8").count("deaf") == 2, "it starts over")
    job.terminate()
    ended(job)
    assert phase_of(job) is JobPhase.SUSPENDED, "who ended it decides what becomes of it"


def test_what_it_prints_is_bounded(opened: Opened) -> None:
    job = opened("line = 'x' * 999\nfor _ in range(60_000): print(line)\nprint('the end')")
    job.start(Allocation(1))
    ended(job)
    logs = sorted(job.log_folder.iterdir())
    assert sum(path.stat().st_size for path in logs) <= 2 * 16 * 1024 * 1024
    assert "the end" in (job.log_folder / "worker-0.log").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel is told")
def test_where_memory_runs_out_the_script_dies_before_its_launcher_and_us(opened: Opened) -> None:
    job = opened("print(open('/proc/self/oom_score_adj').read())\nheap = []\nraise MemoryError('all of it')")
    job.start(Allocation(1))
    ended(job)
    assert "500" in (job.log_folder / "worker-0.log").read_text(encoding="utf-8")
    assert int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii")) < 500
    assert job.measure().failure == "worker-0 ended with exit code 1: MemoryError: all of it"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
def test_a_launcher_that_is_killed_leaves_nothing_behind(opened: Opened, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
        "print('has left', flush=True)\ntime.sleep(1000)"
    )
    job = opened(code)
    job.start(Allocation(1))
    log = job.log_folder / "worker-0.log"
    wait_until(lambda: log.exists() and "has left" in log.read_text(encoding="utf-8"), "it runs")
    launchers = Launchers(tmp_path / "jobs")
    assert len(launchers.processes("job")) == 3
    number = launchers.running("job")
    assert number
    os.kill(number, signal.SIGKILL)
    wait_until(lambda: job.launcher is None, "nobody holds its lock")
    job.clear()
    wait_until(lambda: launchers.processes("job") == [], "the others are ended")
    assert not job.measure().is_ending


def test_several_workers_get_what_torchrun_gives_and_gpus_of_their_own(opened: Opened, tmp_path: Path) -> None:
    code = (
        "import os\nnames = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS')\n"
        "print('got', *(os.environ.get(name) for name in names))"
    )
    ledger = GpuLedger(tmp_path / "jobs", ["GPU-a", "GPU-b", "GPU-c"])
    job = opened(code, worker={"replicas": 2, "gpu": 1, "cpu": 2})
    assert ledger.grow("job", 2) == ""
    assert ledger.grow("other", 2) == "it needs 2 more GPUs, and 1 is free"
    job.start(Allocation(2))
    ended(job)
    lines = [(job.log_folder / f"worker-{rank}.log").read_text(encoding="utf-8") for rank in range(2)]
    assert ["got 0 2 127.0.0.1 GPU-a 2" in lines[0], "got 1 2 127.0.0.1 GPU-b 2" in lines[1]] == [True, True]
    assert read_used(tmp_path / "jobs" / "job.gpus") == {"workers": ("GPU-a", "GPU-b")}
    assert phase_of(job) is JobPhase.FINISHED


OWN_HANDLER = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
runs = pathlib.Path("runs")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
while len(runs.read_text()) < 2:
    time.sleep(0.01)
"""


def test_a_script_that_ends_well_as_its_launcher_is_told_to_end_has_stopped_and_goes_on_later(
    opened: Opened, tmp_path: Path
) -> None:
    """As at the shutdown of its machine, where each process gets SIGTERM."""
    job = opened(OWN_HANDLER)
    job.start(Allocation(1))
    wait_until(lambda: (tmp_path / "runs").exists() and phase_of(job) is JobPhase.RUNNING, "it runs")
    job.terminate()
    ended(job)
    assert (job.measure().phase, job.measure().failure) == (JobPhase.SUSPENDED, "")
    job.start(Allocation(1))
    ended(job)
    assert job.measure().phase is JobPhase.FINISHED


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(128 + signal.SIGTERM)"])
def test_a_script_that_sigterm_ends_from_outside_starts_over(opened: Opened, how: str) -> None:
    code = f"import os, pathlib, signal, sys\nif not os.path.exists('was'):\n    pathlib.Path('was').touch()\n    {how}"
    job = opened(code)
    job.start(Allocation(1))
    ended(job)
    assert (job.measure().phase, job.measure().failures) == (JobPhase.FINISHED, 0)


@pytest.mark.heavy
def test_one_that_it_ends_again_and_again_without_getting_on_fails_in_the_end(opened: Opened) -> None:
    job = opened("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    job.start(Allocation(1))
    ended(job)
    assert (job.measure().phase, job.measure().failure) == (JobPhase.FAILED, "worker-0 was ended by SIGTERM")


COUNTS = """
import os, pathlib, signal, sys, time
print("run", os.environ.get("RESTART_COUNT"), *sys.argv[1:], flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[1])))
while not pathlib.Path("go").exists():
    time.sleep(0.05)
sys.exit(int(pathlib.Path("go").read_text()))
"""


@pytest.mark.parametrize("end", ["suspended", "launcher", "agent"])
@pytest.mark.parametrize("code", [0, 1])
def test_one_that_is_requeued_is_started_again_with_its_words_and_its_count(
    opened: Opened, tmp_path: Path, end: str, code: int
) -> None:
    log = tmp_path / "jobs" / "job" / "logs" / "worker-0.log"
    for number in range(3):
        job = opened(COUNTS, args=[str(code), "--lr", "0.1"], requeue=True)
        job.start(Allocation(1))
        line = f"run {number} {code} --lr 0.1"
        wait_until(lambda line=line: log.exists() and line in log.read_text(encoding="utf-8"), line)  # type: ignore[misc]
        wait_until(lambda job=job: phase_of(job) is JobPhase.RUNNING, "its launcher says so")  # type: ignore[misc]
        assert job.measure().restarts == number
        if number < 2:
            if end == "suspended":
                assert job.request("give-back", SUSPENDED, resume=False) == ""
            elif end == "agent":
                job.terminate()
            else:
                launcher = job.launcher
                assert launcher
                os.kill(launcher, signal.SIGKILL)
            ended(job)
            job.clear()
            if end != "launcher":
                assert phase_of(job) is JobPhase.SUSPENDED
    (tmp_path / "go").write_text("3", encoding="utf-8")
    ended(job)
    assert phase_of(job) is JobPhase.FAILED
    assert job.measure().failure.startswith("worker-0 ended with exit code 3")
    assert log.read_text(encoding="utf-8").count("run ") == 3, "by itself it is not started again"


def test_one_that_is_not_requeued_is_not_told_a_count(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "go").write_text("0", encoding="utf-8")
    job = opened(COUNTS, args=["0"])
    job.start(Allocation(1))
    ended(job)
    assert "run None 0" in (job.log_folder / "worker-0.log").read_text(encoding="utf-8")
