"""Figures from hand-made observations, where every number is known."""

from pathlib import Path

import pytest

from benchmarks.resize.movement_bound import least_bytes
from benchmarks.resize.resizing import Observation, Resize, WorkerSteps, read_steps
from benchmarks.resize.row import row
from elastic_runtime.control.messages import RequestState, ResizeMode, Size
from elastic_runtime.model.layout import TensorSpec, build_layout


def steps_file(folder: Path, task: str, lines: list[tuple[int, float, float]], process: int = 1) -> None:
    text = "".join(f"{step} {began:.6f} {stall:.6f}\n" for step, began, stall in lines)
    (folder / f"{task}.{process}.steps").write_text(text, encoding="ascii")


def request(clock: int, steps: int, stall_seconds: float = 0.0, moved_bytes: int = 30) -> RequestState:
    return RequestState(
        "r", "resize", target=Size(3, 1), clock=clock, steps=steps, stall_seconds=stall_seconds, moved_bytes=moved_bytes
    )


def observed(folder: Path, *resizes: Resize) -> Observation:
    return Observation(resizes, tuple(read_steps(folder)), 0.0, 60.0)


def one_resize(folder: Path, stall_seconds: float = 0.0) -> Observation:
    """Steps of one second, but those numbered 9, 10 and 11, which take 1.5 while blocks move."""
    seconds = [1.5 if number in (9, 10, 11) else 1.0 for number in range(40)]
    begins = [sum(seconds[:number]) for number in range(41)]
    steps_file(folder, "worker-0", [(n, began, 0.25 if n > 10 else 0.0) for n, began in enumerate(begins)])
    return observed(folder, Resize(3, 6.0, 14.0, 40.0, request(10, 2, stall_seconds)))


def test_steps_while_blocks_move_are_compared_with_quiet_ones(tmp_path: Path) -> None:
    found = row(1.0, ResizeMode.ROLLING, one_resize(tmp_path), [30], 90)
    # The step before the clock is one of them: its applied blocks are what is sent.
    assert found["step_seconds_base"] == 1.0
    assert found["step_seconds_migrating"] == 1.5
    assert found["extra_step_time_percent"] == 50.0
    assert found["extra_seconds_per_resize"] == pytest.approx(1.5)
    assert found["overhead_percent_at_one_resize_per_20_minutes"] == pytest.approx(0.125)


@pytest.mark.parametrize(("said_seconds", "stall_ms"), [(0.1, 250.0), (0.4, 400.0)])
def test_a_stall_is_what_the_workers_or_the_coordinator_say_whichever_is_more(
    tmp_path: Path, said_seconds: float, stall_ms: float
) -> None:
    found = row(1.0, ResizeMode.ROLLING, one_resize(tmp_path, said_seconds), [30], 90)
    assert found["stall_p50_ms"] == found["stall_p99_ms"] == stall_ms


def test_moved_bytes_are_compared_with_the_least_possible(tmp_path: Path) -> None:
    assert row(1.0, ResizeMode.ROLLING, one_resize(tmp_path), [20], 90)["moved_bytes_over_minimum"] == 1.5


def test_a_restart_lasts_from_the_last_step_of_the_old_to_the_first_of_the_new_processes(tmp_path: Path) -> None:
    steps_file(tmp_path, "worker-0", [(n, float(n), 0.0) for n in range(11)])
    steps_file(tmp_path, "worker-1", [(n, n + 0.1, 0.0) for n in range(11)])
    steps_file(tmp_path, "worker-2", [(n, n + 20.0, 0.0) for n in range(11, 31)])
    steps_file(tmp_path, "worker-3", [(n, n + 20.1, 0.0) for n in range(11, 31)])
    resize = Resize(3, 5.5, 32.0, 45.0, request(11, 0))
    found = row(1.0, ResizeMode.CHECKPOINT_RESTART, observed(tmp_path, resize), [30], 90)
    # 10.1 to 31, of which a step takes one second anyway.
    assert found["stall_p50_ms"] == pytest.approx(19_900.0)
    assert found["moved_bytes_over_minimum"] == 3.0


def test_a_line_cut_by_the_end_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "worker-0.7.steps").write_text("1 1.0 0.0\n2 2.5 0.1\n3 4.", encoding="ascii")
    (worker,) = read_steps(tmp_path)
    assert isinstance(worker, WorkerSteps)
    (step,) = worker.steps
    assert (worker.task, step.number, step.seconds, step.stall_seconds) == ("worker-0", 1, 1.5, 0.1)
    assert worker.last_seconds == 2.5


def test_the_least_movement_of_adding_and_removing_a_third_server() -> None:
    layout = build_layout([TensorSpec("weight", (3 * 262144,), "float32")], [])
    third = layout.total_bytes / 3
    largest = max(block.size_bytes for block in layout.blocks)
    least = least_bytes(layout, [2, 3, 2, 3])
    assert all(third - largest <= moved <= third for moved in least)
