"""A worker sees GPUs of its own, and those that it uses are told to whoever shares them out."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_runtime.launcher.gpu_seats import GpuSeats, read_gpus, read_used, write_gpus
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_table import TaskTable
from elastic_runtime.protocol.plan import JobPhase, Plan, View

VIEW = View(1, 1, JobPhase.RUNNING, 0, "", Plan((), ()))


def test_no_gpu_has_two_workers_and_one_that_ended_leaves_its_own_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "gpus"
    write_gpus(file, ["GPU-a", "GPU-b", "GPU-c", "GPU-d"])
    seats = GpuSeats(file, 2)
    assert seats.take("worker-0") == ("GPU-a", "GPU-b")
    assert seats.take("worker-1") == ("GPU-c", "GPU-d")
    assert read_used(file) == {"worker-0": ("GPU-a", "GPU-b"), "worker-1": ("GPU-c", "GPU-d")}
    with pytest.raises(OSError, match="worker-2 needs 2 GPUs, and 0 of the job's are free"):
        seats.take("worker-2")
    seats.give_back("worker-0")
    assert read_used(file) == {"worker-1": ("GPU-c", "GPU-d")}
    write_gpus(file, ["GPU-c", "GPU-d", "GPU-e", "GPU-f"])
    assert seats.take("worker-2") == ("GPU-e", "GPU-f")


def test_a_list_that_is_none_holds_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text("{", encoding="utf-8")
    assert read_gpus(tmp_path / "gpus") == read_gpus(None) == ()
    assert read_used(tmp_path / "gpus") == {}


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[TaskTable]:
    """Of a job whose workers have a GPU each, out of the list in `gpus`, and sleep."""

    def task_process(task: str, *_: object) -> ProcessSpec:
        command = (sys.executable, "-c", "import time; time.sleep(600)")
        return ProcessSpec(command, {}, tmp_path, tmp_path / f"{task}.log")

    spec = SimpleNamespace(gpu_file=tmp_path / "gpus", worker_gpus=1)
    programs: Any = SimpleNamespace(spec=spec, task_process=task_process)
    table = TaskTable(programs, LauncherSettings(), lambda *_: None, time.monotonic)
    yield table
    table.kill_all()


def test_a_worker_waits_for_the_gpu_of_one_that_goes_and_fails_where_there_is_none(
    tmp_path: Path, tasks: TaskTable
) -> None:
    """It failed, as did those after it, within the moment that a process takes to end, and its job with them."""
    write_gpus(tmp_path / "gpus", ["GPU-a"])
    assert tasks.follow(replace(VIEW, wanted=("worker-0",)), "") == []
    # Its coordinator has let it go, or lost it, or was suspended meanwhile.
    wanted = replace(VIEW, wanted=("worker-1",))
    assert tasks.follow(wanted, "") == []
    assert tasks.running == ("worker-0",)
    [old] = tasks.pids
    os.kill(old, signal.SIGKILL)
    while not tasks.reap():
        time.sleep(0.01)
    assert tasks.follow(wanted, "") == []
    assert tasks.running == ("worker-1",)
    assert read_used(tmp_path / "gpus") == {"worker-1": ("GPU-a",)}
    [end] = tasks.follow(replace(VIEW, wanted=("worker-1", "worker-2")), "")
    assert end.task == "worker-2"
    assert end.last_words.endswith("worker-2 needs 1 GPUs, and 0 of the job's are free")
