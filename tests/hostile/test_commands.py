"""Every option of every command with every bad value: exit code 2, one line that says what, and no half result."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import agent_rows
import pytest
from command_place import DONE, NEEDS_ROLLOUT, ended
from command_table import PASSES, PROGRAMS, SKIPPED, SOUND, STARTED, Place, attacks, commands

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("somewhere_else")]

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 1100


def test_every_command_has_a_row_and_every_console_script_is_looked_at() -> None:
    assert set(SOUND) == set(commands()), (
        "a new command needs a line in command_table.SOUND, a removed one must leave it"
    )
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) <= set(PROGRAMS)


def test_every_exception_names_a_parameter() -> None:
    names = {str(parameter.name) for command in commands().values() for parameter in command.params}
    for label in (*PASSES, *SKIPPED):
        assert label.partition("=")[0] in names, f"{label}: no command has this parameter"


@pytest.mark.parametrize("command", SOUND)
def test_a_bad_value_is_one_line_and_exit_code_2(command: str, place: Place, capsys) -> None:
    wrong = []
    for attack in attacks(command, place):
        if attack.label in SKIPPED:
            continue
        jobs = set(place.jobs.iterdir())
        code, out, err = ended(command, attack.words, capsys)
        lines = err.splitlines()
        if code == 0 or set(lines[-1:]) & STARTED:
            if attack.label not in PASSES:
                wrong.append(f"{attack.label}: taken")
            continue
        if code != 2 and not (code == 3 and attack.parameter in agent_rows.UNREACHABLE):
            wrong.append(f"{attack.label}: exit code {code}: {err[-300:]}")
        elif len(lines) != 1 or len(err) > LONGEST_LINE or not lines[0].isprintable():
            wrong.append(f"{attack.label}: said {err[:600]!r}")
        elif "Traceback" in err or "Error:" in err:
            wrong.append(f"{attack.label}: gave its inside away: {err}")
        elif out:
            wrong.append(f"{attack.label}: printed {out[:200]!r}")
        elif set(place.jobs.iterdir()) != jobs:
            wrong.append(f"{attack.label}: left a job's folder behind")
    assert not wrong, f"{command}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "command",
    DONE,
)
def test_a_sound_line_is_done(command: str, place: Place, capsys) -> None:
    code, out, err = ended(command, SOUND[command](place), capsys)
    assert code == 0, err
    if "json" in SOUND[command](place):
        json.loads(out)


@pytest.mark.parametrize("command", sorted(NEEDS_ROLLOUT))
def test_without_a_rollout_its_commands_say_so(command: str, place: Place, capsys) -> None:
    code, out, err = ended(command, SOUND[command](place), capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    said = ("rollout", "no cluster would come to v1", "a version on which north acted before v1")
    assert any(words in err for words in said)
