import json
import random
from pathlib import Path
from typing import Any

import pytest
from log_worlds import live, make_tape, replayed, rewritten
from processes import Fleet, wait_until

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.cli import app
from cluster_agent.recording.log_reading import CURRENT
from cluster_agent.settings import PolicySettings
from foundation.command_line import run as run_command_line

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path, capsys: Captured) -> Path:
    live(tmp_path, make_tape(6), CandidateFactory(PolicySettings()).from_name_or_file("set"))
    capsys.readouterr()
    return tmp_path / CURRENT


def run(*words: str) -> int:
    return run_command_line(app, "cluster-agent", ["replay-log", *words])


def test_a_sound_log_exits_0_as_json_and_as_a_table(log: Path, capsys: Captured) -> None:
    assert run(str(log), "-o", "json") == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (facts["decisions"], facts["equal"], facts["different"], facts["missing"]) == (6, 6, 0, 0)
    assert facts["first_difference"] is None
    assert facts["policies"] == {"set": 6}
    assert run(str(log.parent)) == 0
    assert "equal, bit for bit" in capsys.readouterr().out


def test_a_difference_exits_1_and_is_named_with_both_values(log: Path, capsys: Captured) -> None:
    rewritten(log, 3, lambda line: line["allocation"].update({"job-1": [16, 1]}))
    assert run(str(log), "-o", "json") == 1
    first = json.loads(capsys.readouterr().out)["first_difference"]
    assert (first["number"], first["job"], first["field"], first["logged"]) == (1, "job-1", "workers", 16)
    assert run(str(log)) == 1
    assert "logged 16, recomputed" in " ".join(capsys.readouterr().out.split())


def test_a_last_line_cut_by_a_crash_is_said_and_tolerated(log: Path, capsys: Captured) -> None:
    log.write_bytes(log.read_bytes()[:-100])
    assert run(str(log), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["decisions"], facts["cut_short"]) == (5, [f"{log}, line 7"])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda log: log.unlink(), "no such file"),
        (lambda log: log.write_bytes(b"hello\n"), "line 1: damaged, or no decision log"),
        (lambda log: log.write_bytes(log.read_bytes().replace(b"job-3", b"job-7", 1)), "line 2: damaged"),
        (lambda log: log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[1:])), "line 1: a decision"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_and_exits_2(log: Path, capsys: Captured, spoil: Any, said: str) -> None:
    spoil(log)
    assert run(str(log)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_folder_that_is_not_there_and_one_without_a_log_are_bad_input(log: Path, capsys: Captured) -> None:
    assert run(str(log), "--policies", str(log.parent / "none")) == 2
    assert "--policies" in capsys.readouterr().err
    assert run(str(log.parent / "policies")) == 2
    assert CURRENT in capsys.readouterr().err


@pytest.mark.heavy
def test_an_agent_killed_again_and_again_leaves_a_log_that_comes_out_the_same(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "fleet").mkdir()
    fleet = Fleet(tmp_path / "fleet")
    state_dir = fleet.folder / "killed"
    how = {"policy": {"initial": "set"}, "guard": {"fallback": "optimus"}}
    generator = random.Random(3)
    try:
        for decisions in (4, 9, 14):
            # Slowly, so that it is killed long before its jobs are done.
            agent = fleet.start_agent("killed", slot_wall_seconds=0.3, **how)
            wait_until(lambda least=decisions: len(fleet.decisions("killed")) >= least, "decisions")  # type: ignore[misc]
            agent.kill()
            # As if it had been killed in the middle of a write: a line that stands there in part.
            log = state_dir / CURRENT
            content = log.read_bytes()
            whole = content.rstrip(b"\n").rfind(b"\n") + 1
            if whole > 0:
                log.write_bytes(content[: generator.randrange(whole + 1, len(content) - 1)])
            assert replayed(state_dir).different == 0
        assert fleet.start_agent("killed", **how).ended() == 0
    finally:
        fleet.close()
    assert run(str(state_dir), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["equal"] == facts["decisions"] > 14
    assert facts["checkpoints"] >= 4
    assert len(facts["cut_short"]) == 3
