import json
from pathlib import Path

import pytest
from PIL import Image

from foundation import command_line
from foundation.errors import INTERRUPTED
from foundation.figures import unit_for
from policy_net.cli import app

CSV = "job_id,submit_time_s,duration_s,num_gpus\na,0,7200,2\nb,60,900,2\n<script>,90,300,1\nd,100,4000,1\n"


def _policy_net(*words: str) -> int:
    return command_line.run(app, "policy-net", words)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "last-week.csv"
    path.write_text(CSV)
    return path


@pytest.mark.heavy
def test_a_report_compares_today_with_the_default_policy_and_says_what_the_json_says(
    trace: Path, tmp_path: Path, capsys
) -> None:
    folder = tmp_path / "new" / "report"
    words = ["--workload", str(trace), "--nodes", "1", "--report", str(folder), "-o", "json"]
    assert _policy_net("replay", *words) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["policy"] for row in rows] == ["fifo", "fifo-easy", "drf", "optimus", "set-taught"]
    assert "index.html" in err
    page = (folder / "index.html").read_text(encoding="utf-8")
    averages = [row["avg_jct_seconds"] for row in rows]
    unit = unit_for(*averages)
    for row in rows:
        for cell in (
            unit.number(row["avg_jct_seconds"]),
            f"{row['avg_bounded_slowdown']:,.1f}",
            f"{row['p99_bounded_slowdown']:,.1f}",
            f"{row['gpu_utilization']:.0%}",
            f"{row['completed']}",
        ):
            assert f">{cell}</td>" in page
    assert f"{unit.text(averages[-1])} instead of {unit.text(averages[1])}" in page
    assert "<script" not in page
    assert "1 machine with 2 GPUs" in page
    with Image.open(folder / "report.png") as image:
        assert image.format == "PNG"
        assert image.width == 1430


@pytest.mark.heavy
def test_a_report_of_named_policies_has_those_only(trace: Path, tmp_path: Path, capsys) -> None:
    words = ["--workload", str(trace), "--policy", "las", "--policy", "drf", "--report", str(tmp_path / "report")]
    assert _policy_net("replay", *words) == 0
    assert "fifo" not in capsys.readouterr().out
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "DRF against LAS" in page


@pytest.mark.heavy
def test_two_workloads_of_one_name_are_kept_apart(trace: Path, tmp_path: Path, capsys) -> None:
    words = ["--workload", str(trace), "--workload", str(trace), "--policy", "drf", "--report", str(tmp_path / "r")]
    assert _policy_net("replay", *words) == 0
    assert (tmp_path / "r" / "index.html").read_text(encoding="utf-8").count("<article>") == 2


def _occupied(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("mine")
    return tmp_path / "file"


def _below_a_file(tmp_path: Path) -> Path:
    return _occupied(tmp_path) / "report"


def _page_is_a_folder(tmp_path: Path) -> Path:
    (tmp_path / "report" / "index.html").mkdir(parents=True)
    return tmp_path / "report"


@pytest.mark.parametrize("make_folder", [_occupied, _below_a_file, _page_is_a_folder])
def test_a_folder_that_cannot_take_a_report_is_refused_before_anything_is_simulated(
    make_folder, trace: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    def must_not_run(*args: object, **kwargs: object) -> None:
        raise AssertionError("the simulation began")

    monkeypatch.setattr("policy_net.laboratory.simulation.replay.replay", must_not_run)
    folder = make_folder(tmp_path)
    assert _policy_net("replay", "--workload", str(trace), "--report", str(folder)) == 2
    err = capsys.readouterr().err
    said = [line for line in err.splitlines() if line.startswith("policy-net: ")]
    assert len(said) == 1
    assert str(folder) in said[0]
    assert "Traceback" not in err


def test_a_folder_that_may_not_be_written_to_is_refused(trace: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("policy_net.laboratory.report.folder.tempfile.TemporaryFile", refuse)
    assert _policy_net("replay", "--workload", str(trace), "--report", str(tmp_path / "report")) == 2
    assert "cannot be written to (Permission denied)" in capsys.readouterr().err


def test_too_many_workloads_for_a_page_are_refused(trace: Path, tmp_path: Path, capsys) -> None:
    words = [word for _ in range(25) for word in ("--workload", str(trace))]
    assert _policy_net("replay", *words, "--report", str(tmp_path / "report")) == 2
    assert "25 workloads" in capsys.readouterr().err


def test_who_stops_a_replay_finds_no_empty_folder_and_what_stood_there_stays(
    trace: Path, tmp_path: Path, monkeypatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("policy_net.laboratory.simulation.replay.replay", stopped)
    words = ("replay", "--workload", str(trace), "--nodes", "1", "--report")
    assert _policy_net(*words, str(tmp_path / "new" / "report")) == INTERRUPTED
    assert not (tmp_path / "new").exists()
    old = tmp_path / "old"
    old.mkdir()
    assert _policy_net(*words, str(old / "report")) == INTERRUPTED
    assert old.is_dir()
    assert not list(old.iterdir())


@pytest.mark.parametrize("twice", ["fifo", "mine:build"])
def test_a_policy_that_is_named_twice_is_refused(trace: Path, tmp_path: Path, monkeypatch, capsys, twice: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise AssertionError\n")
    again = "mine.py" if twice == "mine:build" else twice
    words = ("--policy", twice, "--policy", "drf", "--policy", again)
    assert _policy_net("replay", "--workload", str(trace), *words) == 2
    assert f"--policy '{twice}' is given twice; name it once" in capsys.readouterr().err
