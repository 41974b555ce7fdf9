"""With no room for its journal a coordinator takes no requests, keeps the job going, and recovers by itself."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
from simulated_world import LAYOUT, SETTINGS, TRAINING

from elastic_runtime.control.messages import MemberReport, RequestState, Size
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.errors import ResizeFailed
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.clocks import AwakeClock


class Disk:
    """A disk that can be full."""

    def __init__(self) -> None:
        self.full = False

    def allocate(self, descriptor: int, offset: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, offset, size)


def test_a_full_disk_refuses_requests_and_nothing_else(tmp_path: Path) -> None:
    disk, now = Disk(), [0.0]
    journal = Journal(tmp_path, "simulated", reserve_bytes=16384, allocate=disk.allocate)
    machine = CoordinatorMachine(SETTINGS, now[0], begin(SETTINGS), lambda: 0.0)
    runner = CoordinatorRunner(
        machine, journal, CheckpointStore(tmp_path / "checkpoints", 3), AwakeClock(math.inf, lambda: now[0])
    )

    def report(task: str, number: int, **state: object) -> bool:
        newest = MemberReport(task, number, **state)  # type: ignore[arg-type]
        return runner.run(lambda machine, now: machine.on_report(newest, now))

    def register(newcomer: Newcomer) -> str:
        return runner.run(lambda machine, now: machine.on_register(newcomer, now))

    tasks = ["worker-0", "worker-1", "ps-0", "ps-1"]
    for number, task in enumerate(tasks):
        role = TaskRole.WORKER if task.startswith("worker") else TaskRole.SERVER
        models = (LAYOUT, TRAINING) if role is TaskRole.WORKER else ("", "")
        assert not register(Newcomer(task, role, number, "{}", *models))
    report("worker-0", 0, initialised=True)
    for number in (2, 3):
        report(tasks[number], number, generation=1, ready=True)
    for number in (0, 1):
        report(tasks[number], number, generation=1, step=1, ready=True)
    assert runner.status().phase is JobPhase.RUNNING
    disk.full = True
    taken = 0
    while not journal.full:
        runner.on_request(RequestState(f"r{taken}", "resize", target=Size(2, 3)))
        taken += 1
    assert taken > 0
    with pytest.raises(ResizeFailed, match="journal is full: training goes on, no request is taken; make room"):
        runner.on_request(RequestState("early", "resize", target=Size(2, 3)))
    assert len(runner.status().requests) == taken, "what was refused is not remembered"
    runner.run(lambda machine, now: (None, machine.on_task_ended("worker-1", -9, "", now)))
    view = runner.next_view(0, 0.0)
    assert view is not None
    assert view.substitutes == {"worker-1": "worker-0"}, "the reserve takes what keeps the job going"
    assert report("worker-0", 0, generation=1, step=2)
    disk.full = False
    now[0] += 1.0
    runner.on_tick()
    runner.on_request(RequestState("late", "resize", target=Size(2, 3)))
    runner.close()
    journal.close()
    again = Journal(tmp_path, "simulated")
    assert again.state is not None
    assert [row.request_id for row in again.state.requests.rows] == [*(f"r{n}" for n in range(taken)), "late"]
