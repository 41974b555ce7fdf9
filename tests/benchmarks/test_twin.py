"""The benchmark of the twin: what it compares, and what it refuses."""

import json
from pathlib import Path

import pytest

from benchmarks.twin import __main__ as benchmark
from benchmarks.twin.__main__ import LARGEST_DIFFERENCE, main
from benchmarks.twin.worlds import WORLDS
from foundation.errors import BAD_INPUT, DONE
from policy_net.twin.library import notice

compiled = pytest.mark.skipif(notice() is not None, reason=str(notice()))


@pytest.mark.heavy
@compiled
def test_both_simulators_agree_in_every_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", "--jobs", "6", "--repeats", "1"]) == DONE
    result = json.loads(capsys.readouterr().out)
    assert set(result["worlds"]) == {world.name for world in WORLDS}
    assert result["largest_difference"] <= LARGEST_DIFFERENCE
    assert all(row["decisions"] > 0 for row in result["worlds"].values())


@pytest.mark.heavy
@compiled
def test_both_simulators_agree_on_a_recorded_window(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", "--jobs", "60", "--repeats", "1", "--data", str(data_folder)]) == DONE
    assert json.loads(capsys.readouterr().out)["recorded"]


@compiled
def test_a_heuristic_agrees_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", "--jobs", "6", "--repeats", "1", "--policy", "srtf"]) == DONE
    result = json.loads(capsys.readouterr().out)
    assert result["policy"] == "srtf"
    assert result["largest_difference"] <= LARGEST_DIFFERENCE


@compiled
def test_a_policy_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--policy", "fifo-esy"]) == BAD_INPUT
    assert "did you mean fifo-easy" in capsys.readouterr().err


@compiled
def test_a_folder_without_the_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == BAD_INPUT
    assert "has no workloads/itp-04.csv" in capsys.readouterr().err


def test_without_a_library_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "notice", lambda: "the compiled twin was not built")
    assert main([]) == BAD_INPUT
    assert capsys.readouterr().err == "python -m benchmarks.twin: the compiled twin was not built\n"
