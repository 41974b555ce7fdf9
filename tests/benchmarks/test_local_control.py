"""The benchmark of the local agent's control plane, as it is run: its figures are there, and nothing stays behind."""

from __future__ import annotations

import json

import pytest

from benchmarks.local_control.__main__ import main

COMMANDS = ("jobs_command_table", "jobs_command_json", "jobs_command_one", "jobs_socket", "python_start")


@pytest.mark.long
def test_it_says_what_commands_decisions_and_the_agent_itself_take(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--policies drf --queued 4 --submissions 1 --calls 2 --decisions 1 --fixed 1 --elastic 0 --seconds 1 -o json"
    )
    assert main(words.split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["submissions_per_minute"] > 0
    assert all(0.0 < result[name]["p50_seconds"] <= result[name]["p99_seconds"] for name in COMMANDS)
    assert result["watched"]["clients"] == 50
    decided = result["decisions"]["drf"]
    assert decided["count"] >= 1
    assert decided["p99_seconds"] >= decided["p50_seconds"] > 0.0
    assert result["running"]["fixed"] == 1
    assert 0.0 <= result["running"]["agent_cpu_share"] < 1.0


@pytest.mark.parametrize(
    "words", [["--queued", "0"], ["--submissions", "501"], ["--seconds", "0"], ["--policies", "x"]]
)
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
