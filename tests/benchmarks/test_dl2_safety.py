"""The benchmark of the jobs on which `dl2` is safe: one world under each policy, by the figures that it prints."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import dl2_safety


@pytest.mark.heavy
def test_a_made_up_world_has_each_policy_s_figures_and_their_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dl2_safety", "--seeds", "2", "--only", "8 nodes, 20 jobs", "asynchronous", "-o", "json"]
    monkeypatch.setattr(sys, "argv", words)
    assert dl2_safety.main() == 0
    small, asynchronous = json.loads(capsys.readouterr().out)
    assert small["replays"] == asynchronous["replays"] == 2
    for row in (small, asynchronous):
        for name in dl2_safety.FIGURES:
            low, high = row[f"{name}_over_drf_ci95"]
            assert low < row[f"{name}_over_drf"] < high or low == high == row[f"{name}_over_drf"] == 0.0
            assert row[f"{name}_worst"] >= 1.0 + row[f"{name}_over_drf"]
    assert asynchronous["guarded_over_drf"] == 0.0, "the guard leaves these jobs to fair sharing"
    assert small["guarded_over_drf"] == small["dl2_over_drf"], "and these to the network"
