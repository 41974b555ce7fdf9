"""The benchmark of an agent on a large cluster, as it is run on a small one: every figure is there."""

from __future__ import annotations

import json

import pytest

from benchmarks.kube.__main__ import main


@pytest.mark.heavy
def test_it_says_what_a_tick_takes_and_what_an_agent_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "5", "--pods", "50", "--jobs", "10", "--ticks", "3", "--changes", "2", "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0.0 < result["tick_p50_seconds"] <= result["tick_p99_seconds"]
    # Each job that comes gets one status, and others where their advice changes with it.
    assert 1.0 <= result["calls_per_change"] <= 10.0
    assert result["list_10000_pods_seconds"] > 0.0
    assert result["rss_mb"] > 10.0
    assert result["memory_growth_percent"] > -100.0
