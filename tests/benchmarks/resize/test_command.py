"""The whole command, with real processes and a small model: every figure that was asked for is there."""

import json
from typing import Any

import pytest

from benchmarks.resize.__main__ import main

FIELDS = {
    "model_mb",
    "mode",
    "resizes",
    "stall_p50_ms",
    "stall_p99_ms",
    "extra_step_time_percent",
    "moved_bytes_over_minimum",
    "total_seconds",
}


def measured(capsys: pytest.CaptureFixture[str], mode: str, resizes: int) -> dict[str, Any]:
    options = ["--size", "6", "--mode", mode, "--resizes", str(resizes)]
    assert main([*options, "--settle-steps", "5", "--settle-seconds", "0.7", "-o", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run.keys() >= FIELDS
    assert (run["mode"], run["resizes"]) == (mode, resizes)
    assert 0.0 < run["stall_p50_ms"] <= run["stall_p99_ms"] <= run["stall_max_ms"]
    # A third of the blocks goes to the new server, and comes back from it.
    assert len(run["moved_bytes"]) == resizes
    assert run["moved_bytes"] == run["planned_bytes"]
    assert run["moved_bytes_over_minimum"] == pytest.approx(1.0, abs=0.02)
    assert run["step_seconds_migrating"] > 0.0
    assert all(seconds > 0.0 for seconds in run["phases_seconds"].values())
    return dict(run)


@pytest.mark.heavy
def test_adding_a_server_and_removing_one_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert min(measured(capsys, "rolling", 2)["steps_per_resize"]) > 1


@pytest.mark.long
def test_so_has_the_mode_in_which_workers_wait(capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(capsys, "stop-the-world", 1)["steps_per_resize"] == [1]
