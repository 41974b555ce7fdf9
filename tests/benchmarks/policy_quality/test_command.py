import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import benchmarks.policy_quality.__main__ as command
from benchmarks.policy_quality.cells import Cell
from benchmarks.policy_quality.plan import QUICK, Grid, cells_of
from benchmarks.policy_quality.store import FILE_NAME
from benchmarks.policy_quality.tables import BEGIN, END
from benchmarks.policy_quality.worlds import Cluster
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import PolicySpec

TINY = replace(QUICK, sizings=((24, 60),), seeds_by_jobs={60: 2}, window_jobs=20, every_nth_cluster=1)

KILLABLE = """
import os, sys, threading
from dataclasses import replace
import benchmarks.policy_quality.__main__ as command
from benchmarks.policy_quality.store import ResultStore

add = ResultStore.add

def add_and_hang(self, *what):
    add(self, *what)
    if "HANGS" in os.environ and len(self._results) >= 3:
        threading.Event().wait()

ResultStore.add = add_and_hang

if __name__ == "__main__":
    command.QUICK = replace(command.QUICK, sizings=((24, 60),), seeds_by_jobs={60: 12})
    sys.exit(command.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "workloads"
    folder.mkdir(parents=True)
    for name in ("east", "west"):
        rows = [f"{name}{n},{600 * n},{3600 * (1 + n % 3)},{1 + n % 4}" for n in range(20)]
        (folder / f"{name}.csv").write_text("\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows, ""]))
    return tmp_path / "data"


def _write_policy(path: Path) -> Path:
    spec = PolicySpec(hidden=(8,))
    write_policy_file(path, PolicyFile(spec, initial_weights(spec, 1)))
    return path


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = command.main(["--quick", "-o", "json", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


@pytest.mark.heavy
def test_both_kinds_of_workload_are_compared_and_a_second_run_measures_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--data", str(data), "--policies", "srtf", "--out", str(tmp_path / "out"))
    code, report, err = _run(capsys, *arguments)
    assert code == 0
    assert err == ""
    assert report["policies"] == ["fifo", "drf", "srtf"]
    assert {section["job_kind"] for section in report["real"]} == {"allreduce", "mix"}
    assert report["real"][0]["clusters"] == 2
    assert {section["capacity"] for section in report["synthetic"]} == {"nodes", "pooled"}
    assert (report["cells"], report["cells_found_in_store"]) == (24, 0)
    code, again, _ = _run(capsys, *arguments)
    assert code == 0
    assert again["cells_found_in_store"] == 24
    timed = ("cells_found_in_store", "wall_seconds")
    assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in report.items() if k not in timed}


@pytest.mark.heavy
def test_without_data_the_command_says_that_recorded_workloads_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, report, err = _run(capsys, "--policies", "drf", "--processes", "1")
    assert code == 0
    assert report["real"] == []
    assert "no --data: only made-up workloads are compared" in err


def test_recorded_workloads_alone_need_a_folder_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--recorded"]) == 2
    error = capsys.readouterr().err
    assert "--recorded needs --data FOLDER" in error
    assert error.count("\n") == 1


@pytest.mark.heavy
def test_a_policy_file_is_compared_under_its_name(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUICK", replace(TINY, sizings=(), every_nth_cluster=2))
    file = _write_policy(tmp_path / "v1.safetensors")
    code, report, _ = _run(capsys, "--data", str(data), "--policies", str(file))
    assert code == 0
    assert report["policies"] == ["fifo", "drf", "v1.safetensors"]
    assert [row["policy"] for row in report["real"][0]["policies"]] == report["policies"]


@pytest.mark.heavy
def test_the_page_keeps_its_text_around_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Mine\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    code, _, _ = _run(capsys, "--policies", "drf", "--markdown", str(page))
    assert code == 0
    text = page.read_text()
    assert text.startswith("# Mine\n\nBefore.\n")
    assert text.endswith("\n\nAfter.\n")
    assert "old" not in text
    assert "](page/made_up.csv)" in text
    assert ",drf," in (tmp_path / "page" / "made_up.csv").read_text()


@pytest.mark.heavy
def test_one_failing_cell_is_named_and_loses_no_other(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_lost_cluster(grid: Grid, clusters: Sequence[Cluster]) -> list[Cell]:
        return cells_of(grid, [*clusters, Cluster("lost", "d", 20)])

    monkeypatch.setattr(command, "cells_of", with_a_lost_cluster)
    code, report, err = _run(capsys, "--data", str(data), "--policies", "drf")
    assert code == 1
    assert report["cells"] == 16
    assert len(report["failures"]) == 4
    assert all(failure["cell"].startswith("lost, window 0") for failure in report["failures"])
    assert "failed: drf on lost, window 0" in err
    assert "lost.csv" in err


def test_a_policy_file_that_cannot_be_used_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"no policy")
    assert command.main(["--quick", "--policies", str(tmp_path / "broken.safetensors")]) == 2
    assert "broken.safetensors" in capsys.readouterr().err


@pytest.mark.long
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    script = tmp_path / "killable.py"
    script.write_text(KILLABLE)
    out = tmp_path / "out"
    arguments = [sys.executable, str(script), "--quick", "-o", "json", "--policies", "drf,srtf", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    hangs = {**environment, "HANGS": "1"}
    with subprocess.Popen(arguments, env=hangs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        store, deadline = out / FILE_NAME, time.monotonic() + 200
        while not (store.is_file() and store.read_bytes().count(b"\n") >= 3):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finished = store.read_bytes()
    kept = finished.count(b"\n")
    assert kept == 3
    again = subprocess.run(arguments, env=environment, capture_output=True, timeout=280, check=True, text=True)
    report = json.loads(again.stdout)
    assert report["cells"] == 72
    assert report["cells_found_in_store"] == kept
    assert store.read_bytes().startswith(finished[: finished.rfind(b"\n") + 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "nobody"], "--policies: 'nobody' is no file, and none of all, dl2, drf"),
        (["--policies", ","], "--policies names none"),
        (["--processes", "0"], "--processes is 0: use 1 or more"),
        (["--data", "nowhere"], "nowhere: has no workloads/*.csv"),
        (["--full"], "--full takes long: give --out"),
        (["--markdown", "nowhere/page.md"], "nowhere/page.md: its folder does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_before_anything_is_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_two_policy_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / folder / "v1.safetensors" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        _write_policy(file)
    assert command.main(["--quick", "--policies", ",".join(map(str, files))]) == 2
    assert "'v1.safetensors' is the name of two of them" in capsys.readouterr().err


def test_a_page_without_marks_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    assert command.main(["--quick", "--markdown", str(page)]) == 2
    assert "has no lines <!-- tables" in capsys.readouterr().err
