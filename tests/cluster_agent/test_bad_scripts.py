"""Real jobs that misbehave: each costs itself, is told of in a line, and leaves nothing; the others train on."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from counted_training import PLAIN, job_content, let_go, problem_of
from killed_machine import Machine

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
LOG_BYTES = 2 * 16 * 1024 * 1024
FORKS = """
import os, subprocess, sys
sleeper = [sys.executable, "-c", "import time; time.sleep(1000)"]
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, sleeper)
    os._exit(0)
print("has left three", flush=True)
"""
PRINTS = """
import os
lines = (b"x" * 999 + b"\\n") * 1000
for _ in range(1000):
    os.write(1, lines)
print("the end", flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as machine:
        yield machine
        assert machine.problems == []


def submit(machine: Machine, name: str, code: str, **more: Any) -> None:
    (machine.folder / f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    machine.submit({"name": name, "modelType": "bad", "script": f"{name}.py", "args": [name], **more})


def ended(machine: Machine, name: str) -> dict[str, Any]:
    machine.wait_for(lambda: bool(machine.facts(name).get("ended")), f"{name} ends")
    facts = machine.facts(name)
    machine.wait_for(lambda: not machine.processes(name), f"{name} leaves no process")
    return facts


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_scripts_that_never_train_fail_with_their_reason_while_another_trains_on(machine: Machine) -> None:
    small = {"worker": {"max": 1, "cpu": 0.5}, "ps": {"max": 1, "cpu": 0.5}}
    ring = {"worker": {"max": 1, "cpu": 0.5}, "communication": "AllReduce"}
    machine.submit(job_content("script", "good"))
    submit(machine, "crash-ps", "import elastic_runtime\nraise RuntimeError('no such column')", **small)
    submit(machine, "crash-ring", "import elastic_runtime\nraise RuntimeError('no such column')", **ring)
    submit(machine, "early-ps", "import elastic_runtime", **small)
    submit(machine, "early-ring", "import elastic_runtime", **ring)
    ends = {"ps": "its script ended without having joined the job", "ring": "its script ended before the job did"}
    for kind, end in ends.items():
        crash, early = ended(machine, f"crash-{kind}"), ended(machine, f"early-{kind}")
        assert (crash["state"], early["state"]) == ("failed", "failed")
        assert "RuntimeError: no such column" in crash["note"]
        assert end in early["note"]
        assert "\n" not in crash["note"] + early["note"]
    let_go(machine.folder, "good")
    assert ended(machine, "good")["state"] == "done"
    assert problem_of(machine.folder, "script", "good") == ""


def test_what_a_script_leaves_behind_is_ended_with_it_and_a_gigabyte_of_output_costs_no_memory(
    machine: Machine,
) -> None:
    before = resident_bytes(machine.agent)
    submit(machine, "forks", FORKS)
    submit(machine, "prints", PRINTS)
    largest = 0

    def is_over() -> bool:
        nonlocal largest
        launcher = machine.process_of("prints", "launcher")
        if launcher is not None:
            with suppress(OSError):
                largest = max(largest, resident_bytes(launcher))
        return bool(machine.facts("prints").get("ended"))

    machine.wait_for(is_over, "all is printed")
    assert ended(machine, "forks")["state"] == "done"
    assert ended(machine, "prints")["state"] == "done"
    logs = machine.jobs_folder / "prints" / "logs"
    assert sum(path.stat().st_size for path in logs.iterdir()) <= LOG_BYTES
    assert "the end" in (logs / "worker-0.log").read_text(encoding="utf-8")
    assert 0 < largest < 250e6
    assert resident_bytes(machine.agent) - before < 50e6


def test_the_share_of_one_that_ignores_sigterm_is_given_away_when_it_is_dead(machine: Machine) -> None:
    """The machine's own watch looks whether more processes live than there are cores and GPUs for."""
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PLAIN
    submit(machine, "deaf", deaf, worker={"replicas": 1, "cpu": 4, "gpu": 3})
    machine.wait_for(lambda: machine.trains("deaf"), "it runs")
    machine.submit(job_content("script", "next"))
    machine.persist("cancel", {"name": "deaf"})
    machine.wait_for(lambda: machine.trains("next"), "the next one gets its share")
    assert machine.facts("deaf")["state"] == "cancelled"
    assert not machine.processes("deaf")
    let_go(machine.folder, "next")
    assert ended(machine, "next")["state"] == "done"


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A group of processes that may have so much memory together."""
    group = MEMORY_GROUPS / f"fedl2-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1_500_000_000), encoding="ascii")
    except OSError:
        with suppress(OSError):
            group.rmdir()
        pytest.skip("no group of processes with a limit of memory can be made here")
    yield group
    group.rmdir()


def test_of_all_that_share_the_memory_the_job_that_eats_it_dies(memory_group: Path, tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        (memory_group / "cgroup.procs").write_text(str(machine.agent), encoding="ascii")
        machine.submit(job_content("ps", "good") | {"worker": {"max": 1, "cpu": 1}, "ps": {"max": 1, "cpu": 0.5}})
        machine.wait_for(lambda: machine.trains("good"), "the other one trains")
        alive = {role: machine.process_of("good", role) for role in ("agent", "launcher", "coordinator")}
        submit(machine, "eater", "heap = []\nwhile True: heap.append(bytearray(b'x' * 10_000_000))")
        facts = ended(machine, "eater")
        assert facts["state"] == "failed"
        assert facts["note"] == "worker-0 was ended by SIGKILL: not by us; the kernel does so where memory runs out"
        assert {role: machine.process_of("good", role) for role in alive} == alive
        let_go(tmp_path, "good")
        assert ended(machine, "good")["state"] == "done"
        assert problem_of(tmp_path, "ps", "good") == ""
        machine.kill_agent()
        machine.wait_for(lambda: not (memory_group / "cgroup.procs").read_text(encoding="ascii"), "all have ended")
