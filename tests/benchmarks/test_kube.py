"""The benchmark of an agent on a large cluster, as it is run on a small one: every figure is there, of each mode."""

from __future__ import annotations

import json

import pytest

from benchmarks.kube.__main__ import main

SMALL = ["--nodes", "5", "--pods", "50", "--jobs", "10", "--training-jobs", "4", "--ticks", "3", "--changes", "2"]


@pytest.mark.heavy
def test_it_says_what_a_tick_takes_and_what_an_agent_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--calm-seconds", "0.5", "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["modes"]) == {"auto", "training"}
    for figures in (result, *result["modes"].values()):
        assert 0.0 < figures["tick_p50_seconds"] <= figures["tick_p99_seconds"]
        assert figures["list_10000_pods_seconds"] > 0.0
        assert figures["rss_mb"] > 10.0
        assert figures["memory_growth_percent"] > -100.0
    # Each job that comes gets one status, and others where their advice changes with it.
    assert 1.0 <= result["calls_per_change"] <= 10.0
    # Besides, its size and two Events; a TrainingJob has a Service, a Secret, four pods, and is told of at each stage.
    assert 2.0 <= result["modes"]["auto"]["calls_per_change"] <= 12.0
    assert 9.0 <= result["modes"]["training"]["calls_per_change"] <= 30.0


def test_modes_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--modes", "advice,other"])
    assert "'advice,other' is not some of advice, auto, training" in capsys.readouterr().err
