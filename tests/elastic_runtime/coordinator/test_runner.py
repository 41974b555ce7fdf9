"""What the runner does when a record cannot be written, and how it wakes those who wait."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from memory_records import MemoryRecords
from simulated_world import SETTINGS

from elastic_runtime.control.messages import RequestState, Size
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import JournalUnusable
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.errors import BadInput
from foundation.clocks import AwakeClock


class BreakingRecords(MemoryRecords):
    """A disk that fails at some time."""

    broken = False

    def append(self, record: dict[str, Any]) -> bool:
        if self.broken:
            raise JournalUnusable("the journal cannot be written: Input/output error")
        return super().append(record)


def test_a_failing_disk_ends_the_coordinator_and_publishes_nothing(tmp_path: Path) -> None:
    records = BreakingRecords()
    runner = CoordinatorRunner(
        CoordinatorMachine(SETTINGS, 0.0, begin(SETTINGS), lambda: 0.0),
        records,
        CheckpointStore(tmp_path, 3),
        AwakeClock(1.0, float),
    )
    before = runner.next_view(0, 0.0)
    assert before is not None
    with pytest.raises(BadInput):
        runner.on_request(RequestState("", "resize", target=Size(1, 1)))
    assert runner.failure is None, "a refusal is no failure"
    records.broken = True
    with pytest.raises(JournalUnusable):
        runner.run(lambda machine, now: (None, machine.on_task_ended("ps-0", -9, "", now)))
    assert isinstance(runner.failure, JournalUnusable)
    records.broken = False
    with pytest.raises(JournalUnusable):
        runner.on_tick()
    assert runner.next_view(before.number, 0.0) is None
    runner.close()


def test_closing_wakes_whoever_waits_for_a_view(tmp_path: Path) -> None:
    machine = CoordinatorMachine(SETTINGS, 0.0, begin(SETTINGS), lambda: 0.0)
    runner = CoordinatorRunner(machine, MemoryRecords(), CheckpointStore(tmp_path, 3), AwakeClock(1.0, float))
    first = runner.next_view(0, 0.0)
    assert first is not None
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(runner.next_view(first.number, 60.0)))
    waiting.start()
    runner.close()
    waiting.join(30.0)
    assert found == [None]
