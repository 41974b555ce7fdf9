"""Every option of every command with every bad value: exit code 2, one line that says what, and no half result."""

from __future__ import annotations

import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import agent_rows
import elastic_rows
import pytest
import structlog
from command_table import PASSES, PROGRAMS, SKIPPED, SOUND, STARTED, Place, attacks, commands, make_context, make_files
from hostile_job import HostileJob, make_job
from hostile_learner import HostileLearner

import deploy.local.demo
import deploy.train.demo
from deploy.local.processes import DemoFailed
from foundation.command_line import run

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 1100


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    learner = HostileLearner(tmp_path_factory.mktemp("learner"))
    folder = tmp_path_factory.mktemp("commands")
    make_files(folder)
    admin = learner.process.state_dir / "identity" / "admin.pem"
    place = Place(folder, learner.process.address, admin)
    job = HostileJob(make_job(place.jobs, place.script, elastic_rows.RUNS))
    job.folder.log_file("worker-0").write_text("step 1\n")
    for name in (elastic_rows.RESTS, elastic_rows.GOES):
        make_job(place.jobs, place.script, name)
    agent = agent_rows.HostileAgent(agent_rows.socket_of(folder).parent, place.script)
    yield place
    agent.close()
    job.close()
    learner.close()


@pytest.fixture(autouse=True)
def _somewhere_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, and with a demo that starts nothing."""
    (place.folder / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(place.folder / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.folder / "config"))
    make_context(place.folder / "config")

    def started(*_: object) -> None:
        raise DemoFailed("the demo was started")

    monkeypatch.setattr(deploy.local.demo, "Processes", started)
    monkeypatch.setattr(deploy.train.demo, "Processes", started)
    elastic_rows.start_nothing(monkeypatch)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


ANSWERED = (*elastic_rows.STARTS_NOTHING, *agent_rows.ANSWERS)


NEEDS_ROLLOUT = {
    "policyctl rollback",
    *(
        f"policyctl rollout {verb}"
        for verb in ("start", "status", "watch", "promote", "pause", "resume", "abort", "pin")
    ),
}
"""The learner here has one version and no rollout; with one they are tested beside policyctl."""
NEEDS_CERTIFICATE = {"policyctl cluster forget"}
"""Nobody here was enrolled and turned out; that is tested beside enrollment."""


def program_of(command: str) -> str:
    return next(program for program in PROGRAMS if command.startswith(program))


def ended(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    program = program_of(command)
    capsys.readouterr()
    code = run(PROGRAMS[program], program, [*command.removeprefix(program).split(), *words])
    said = capsys.readouterr()
    return code, said.out, said.err


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
    [
        name
        for name in SOUND
        if (name.split()[0] in ("policy-net", "policyctl") or name in ANSWERED)
        and name not in NEEDS_ROLLOUT | NEEDS_CERTIFICATE
    ],
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
