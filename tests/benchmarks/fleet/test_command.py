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


@pytest.mark.parametrize(
    "arguments",
    [
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
