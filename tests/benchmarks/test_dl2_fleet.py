"""The benchmark of a fleet of `dl2` in one process, as small as it goes."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import dl2_fleet


@pytest.mark.heavy
@pytest.mark.parametrize("way", [["--mixes", "one", "--mode", "robust"], ["--local", "0"], ["--alone"]])
def test_a_small_fleet_is_judged_on_its_way(
    way: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--clusters", "2", "--jobs", "6", "--draws", "3", "--lessons", "4", "--every", "2", "--validated", "1"]
    monkeypatch.setattr(sys, "argv", ["dl2_fleet", *few, *way, "-o", "json"])
    assert dl2_fleet.main() == 0
    result = json.loads(capsys.readouterr().out)
    assert [point["lessons"] for point in result["curve"]] == [0, 2, 4]
    assert result["curve"][-1]["moved"] > 0.0
    assert result["best"] <= result["last"]
