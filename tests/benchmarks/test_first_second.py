import sys
from pathlib import Path

import pytest

from benchmarks.first_second import Command, measure, prepare, used_seconds


def test_only_the_time_of_the_command_itself_is_counted(tmp_path: Path) -> None:
    environment = prepare(tmp_path)
    sum(range(10**6))  # this process's own
    used, passed, code = used_seconds([sys.executable, "-c", "raise SystemExit(7)"], tmp_path, environment)
    busy, _, _ = used_seconds([sys.executable, "-c", "sum(range(3 * 10**7))"], tmp_path, environment)
    assert code == 7
    assert 0 < used < busy
    assert passed > 0


def test_a_record_has_each_command_beside_a_bare_interpreter() -> None:
    record = measure((Command("global-learner", ("serve", "--confg"), 2),), turns=1)
    (row,) = record["commands"]
    assert row["command"] == "global-learner serve --confg"
    assert row["cpu_seconds"] > record["bare_python_cpu_seconds"] > 0
    assert row["times_bare_python"] > 1
    assert record["beyond_goal"] in (0, 1)


def test_a_command_that_ends_otherwise_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="global-learner --version: ended with 0, and not with 3"):
        measure((Command("global-learner", ("--version",), 3),), turns=1)


def test_the_user_s_own_jobs_and_agents_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_JOBS", "/of/the/user")
    environment = prepare(tmp_path)
    assert "ELASTIC_JOBS" not in environment
    assert environment["HOME"] == str(tmp_path)
