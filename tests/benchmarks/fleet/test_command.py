import json

import pytest

from benchmarks.fleet.__main__ import main


@pytest.mark.long
def test_a_small_fleet_loses_nothing_and_every_figure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pace = ["--seconds", "6", "--period-seconds", "1", "--heartbeat-seconds", "0.5"]
    assert main(["--clusters", "12", "--processes", "2", "--ratio-rounds", "1", *pace, "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["lost"] == result["twice"] == result["unasked"] == result["gaps"] == 0
    assert result["acknowledged"] == result["logged"] == 12 * 6
    assert result["refused"] == result["failures"] == {}
    assert result["heartbeats"] >= 12
    for name in (
        "p99_ms",
        "push_over_echo",
        "push_over_message_echo",
        "push_cpu_ms",
        "echo_cpu_ms",
        "memory_mb",
        "pull_p99_ms",
        "enroll_seconds",
    ):
        assert result[name] > 0.0, name
    assert result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]
    assert result["memory_alone_mb"] < result["memory_mb"] <= result["memory_most_mb"]
    assert isinstance(result["memory_growth_percent"], float)


@pytest.mark.long
def test_a_small_tree_loses_nothing_though_a_region_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    pace = ["--seconds", "8", "--period-seconds", "1", "--heartbeat-seconds", "0.5", "--push-seconds", "1"]
    assert main(["--regions", "2", "--clusters", "6", *pace, "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["lost"] == result["twice"] == result["unasked"] == result["gaps"] == result["pushes_twice"] == 0
    assert result["acknowledged"] == 6 * 8
    assert result["samples_at_root"] == result["samples_acknowledged"] > 0
    assert result["refused"] == result["updates_lost_above"] == 0
    assert result["killed_regions"] == 1
    assert result["pushes_at_root"] >= 4
    assert result["p99_ms"] > 0.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--regions", "-1"],
        ["--regions", "5", "--clusters", "4"],
        ["--regions", "2", "--push-seconds", "0"],
        ["--clusters", "0"],
        ["--processes", "0"],
        ["--seconds", "0"],
        ["--period-seconds", "-1"],
        ["--ratio-rounds", "-1"],
        ["--heartbeat-seconds", "-1"],
    ],
)
def test_fleets_that_are_none_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "--" in capsys.readouterr().err.splitlines()[-1]
