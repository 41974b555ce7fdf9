"""Figures 13 and 14 are drawn from a record, whatever rows it has."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from benchmarks.resize.__main__ import main
from benchmarks.resize.figures import draw


def run(model_mb: float, mode: str, stall_ms: float) -> dict[str, Any]:
    phases = {"registration": 0.05, "assignment": 0.0003, "migration": 0.5, "worker_update": stall_ms / 1000.0}
    return {
        "model_mb": model_mb,
        "mode": mode,
        "resizes": 3,
        "stall_p50_ms": stall_ms,
        "stall_p99_ms": 2.0 * stall_ms,
        "extra_step_time_percent": 3.0,
        "moved_bytes_over_minimum": 1.0,
        "total_seconds": 30.0,
        "phases_seconds": phases,
    }


RUNS = [run(24.0, "rolling", 0.2), run(24.0, "checkpoint-restart", 7000.0), run(102.0, "rolling", 0.3)]


@pytest.mark.parametrize("runs", [RUNS, RUNS[:1], RUNS[1:2]])
def test_both_figures_are_written(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    paths = draw(runs, tmp_path / "new")
    assert [path.name for path in paths] == ["figure13.png", "figure14.png"]
    for path in paths:
        pixels = imread(path)
        assert pixels.shape[0] > 400 < pixels.shape[1]
        assert pixels[..., :3].min() < 0.5  # something is drawn


@pytest.mark.heavy
def test_more_rows_draw_another_figure(tmp_path: Path) -> None:
    few, many = draw(RUNS[:1], tmp_path / "few")[0], draw(RUNS, tmp_path / "many")[0]
    assert few.read_bytes() != many.read_bytes()


def test_records_of_several_runs_are_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, runs in zip(paths, (RUNS[:2], RUNS[2:]), strict=True):
        path.write_text(json.dumps({"setup": {"workers": 2}, "runs": runs}), encoding="utf-8")
    figures = tmp_path / "figures"
    assert main(["--records", *map(str, paths), "--figures", str(figures), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"setup": {"workers": 2}, "runs": RUNS}
    assert (figures / "figure14.png").is_file()


@pytest.mark.parametrize("options", [["--resizes", "0"], ["--mode", "teleport"], ["--records", "nowhere.json"]])
def test_options_that_cannot_be_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert options[0] in capsys.readouterr().err
