"""A worker sees GPUs of its own, and those that it uses are told to whoever shares them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_runtime.launcher.gpu_seats import GpuSeats, read_gpus, read_used, write_gpus


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
