import os
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.policy_quality.cells import Disturbance, SyntheticCell
from benchmarks.policy_quality.store import FILE_NAME, ResultStore, Task
from policy_net.domain import CapacityMode
from policy_net.errors import BadInput

CELL = SyntheticCell(24, 60, "varied", CapacityMode.POOLED, Disturbance.NONE, 9_700_000, 2_000)
TASK = Task(CELL, "drf", "v")


def test_what_was_added_is_found_by_the_next_run(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.add(TASK, {"avg_jct_seconds": 12.5})
    with ResultStore(tmp_path) as store:
        assert store.get(TASK) == {"avg_jct_seconds": 12.5}


@pytest.mark.parametrize(
    "other",
    [
        replace(TASK, policy="fifo"),
        replace(TASK, version="w"),
        replace(TASK, cell=replace(CELL, seed=9_700_001)),
        replace(TASK, cell=replace(CELL, capacity=CapacityMode.NODES)),
    ],
)
def test_figures_of_anything_else_are_not_found(other: Task, tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.add(TASK, {"avg_jct_seconds": 12.5})
        assert store.get(other) is None


def test_a_policy_file_is_known_by_its_name_wherever_it_lies(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.add(replace(TASK, policy="/one/v1.safetensors"), {"avg_jct_seconds": 1.0})
        assert store.get(replace(TASK, policy="two/v1.safetensors")) is not None


@pytest.mark.parametrize(("seconds", "waits"), [(0.0, 4), (1e9, 1)])
def test_the_disk_is_waited_for_now_and_then_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, waits: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("benchmarks.policy_quality.store.SYNC_SECONDS", seconds)
    monkeypatch.setattr(os, "fsync", synced.append)
    with ResultStore(tmp_path) as store:
        for number in range(3):
            store.add(replace(TASK, cell=replace(CELL, seed=number)), {"avg_jct_seconds": 1.0})
            assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) == number + 1
    assert len(synced) == waits


def test_a_line_that_was_cut_off_is_dropped_and_the_next_is_whole(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.add(TASK, {"avg_jct_seconds": 1.0})
        store.add(replace(TASK, policy="las"), {"avg_jct_seconds": 2.0})
    file = tmp_path / FILE_NAME
    file.write_bytes(file.read_bytes()[:-9])
    with ResultStore(tmp_path) as store:
        assert len(store) == 1
        store.add(replace(TASK, policy="srtf"), {"avg_jct_seconds": 3.0})
    with ResultStore(tmp_path) as store:
        assert store.get(TASK) == {"avg_jct_seconds": 1.0}
        assert store.get(replace(TASK, policy="las")) is None
        assert store.get(replace(TASK, policy="srtf")) == {"avg_jct_seconds": 3.0}


def test_a_line_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("hello\n")
    with pytest.raises(BadInput, match=r"cells.jsonl, line 1: not a result"):
        ResultStore(tmp_path)


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with ResultStore(tmp_path), pytest.raises(BadInput, match="another run is writing there"):
        ResultStore(tmp_path)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(BadInput, match="taken: cannot be used for results"):
        ResultStore(tmp_path / "taken")
