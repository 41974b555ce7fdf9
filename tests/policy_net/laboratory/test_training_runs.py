"""A run's folder says what was asked for, how it went and what came of it; also of one that was killed."""

import math
from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.training_runs import (
    POINTS,
    Curve,
    RunRecorder,
    TrainingRun,
    differing,
    final_figures,
    last_value,
    named_apart,
    read_run,
)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    now = [10.0]
    recorder = RunRecorder(
        tmp_path / "a", {"policy": "set", "training": {"pairs": 16}, "workloads": ["x", "y"]}, lambda: now[0]
    )
    for step in (1, 2, 3):
        recorder.point("loss", step, 3, 1.0 / step)
    now[0] = 12.5
    recorder.end({"updates": 3, "deep": {"er": True}})
    run = read_run(tmp_path / "a")
    assert run.name == "a"
    assert run.settings == {"policy": "set", "training.pairs": 16, "workloads": "x, y"}
    assert run.final == {"updates": 3, "deep.er": True, "seconds": 2.5}
    assert run.curves == (Curve("loss", ((1, 1.0), (2, 0.5), (3, 1.0 / 3.0))),)


def test_of_many_steps_stretches_are_averaged_and_none_is_lost(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "a", {})
    steps = 10 * POINTS + 7
    for step in range(1, steps + 1):
        recorder.point("loss", step, steps, float(step))
    (curve,) = read_run(tmp_path / "a").curves
    stretch = math.ceil(steps / POINTS)
    assert len(curve.points) <= POINTS
    assert curve.points[0] == (stretch, (1 + stretch) / 2)
    assert curve.points[-1][0] == steps


def test_of_a_run_that_was_killed_everything_is_there_but_the_end(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "a", {"seed": 3})
    recorder.point("loss", 1, 100, 2.0)
    recorder.point("loss", 2, 100, math.nan)
    with (tmp_path / "a" / "curve.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"figure": "lo')
    run = read_run(tmp_path / "a")
    assert (run.settings, run.final) == ({"seed": 3}, {})
    assert run.curves[0].points[0] == (1, 2.0)
    assert math.isnan(run.curves[0].points[1][1])


def test_a_folder_with_a_run_is_not_written_over_and_one_without_is_none(tmp_path: Path) -> None:
    RunRecorder(tmp_path / "a", {})  # what is refused before its first step leaves its folder to the corrected command
    RunRecorder(tmp_path / "a", {}).point("reward", 1, 1, 0.5)
    with pytest.raises(BadInput, match="holds a run already; name another folder"):
        RunRecorder(tmp_path / "a", {})
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        RunRecorder(tmp_path / "file", {})
    with pytest.raises(BadInput, match="holds no run"):
        read_run(tmp_path / "b")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1, "settings": {}}', '{"format": 2, "settings": {}, "final": {}}', "\xff"]
)
def test_a_damaged_run_is_said_in_a_line(tmp_path: Path, content: str) -> None:
    RunRecorder(tmp_path / "a", {}).point("reward", 1, 1, 0.5)
    (tmp_path / "a" / "run.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput):
        read_run(tmp_path / "a")


@pytest.mark.parametrize(
    "line",
    ["7", "{}", '{"figure": "loss", "step": "x", "value": 1}', '{"figure": "loss", "step": Infinity, "value": 1}', "{"],
)
def test_a_damaged_curve_is_said_in_a_line(tmp_path: Path, line: str) -> None:
    RunRecorder(tmp_path / "a", {}).point("reward", 1, 1, 0.5)
    (tmp_path / "a" / "curve.jsonl").write_text(f"{line}\n")
    with pytest.raises(BadInput, match="holds no run that can be read"):
        read_run(tmp_path / "a")


def test_a_curve_that_cannot_be_written_costs_the_curve_and_is_told_at_the_end(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "a", {})
    recorder.point("reward", 1, 3, 0.5)
    (tmp_path / "a" / "curve.jsonl").unlink()
    (tmp_path / "a" / "curve.jsonl").mkdir()
    recorder.point("reward", 2, 3, 0.5)
    recorder.point("reward", 3, 3, 0.5)
    with pytest.raises(IsADirectoryError):
        recorder.end({})


def run_of(name: str, settings: dict[str, object], final: dict[str, object]) -> TrainingRun:
    return TrainingRun(name, settings, final, ())


def test_settings_that_differ_and_figures_that_came_of_it_are_told_apart() -> None:
    runs = [
        run_of(
            "a", {"seed": 1, "steps": 3, "pairs": 16}, {"seed": 1, "updates": 3, "evolution.pairs": 16, "parent": "x"}
        ),
        run_of("b", {"seed": 2, "steps": 3}, {}),
    ]
    assert differing(runs) == ["seed", "pairs"]
    assert final_figures(runs) == ["updates", "parent"]


def test_folders_of_the_same_name_are_told_apart_by_their_paths() -> None:
    runs = named_apart(
        [(Path("x/a"), run_of("a", {}, {})), (Path("y/a"), run_of("a", {}, {})), (Path("b"), run_of("b", {}, {}))]
    )
    assert [run.name for run in runs] == ["x/a", "y/a", "b"]


def test_the_last_value_is_the_mean_of_a_tenth_that_is_finite() -> None:
    points = tuple((step, float(step)) for step in range(1, 31))
    assert last_value(Curve("loss", points)) == 29.0
    assert last_value(Curve("loss", ((1, math.nan),))) is None
    assert last_value(Curve("loss", ((1, 2.0),))) == 2.0
