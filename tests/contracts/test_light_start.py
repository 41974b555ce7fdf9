"""Help and refusals of every program wait for no numbers, no servers and no pages: what they load is named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typed_commands import COMMANDS, Command, prepare

HEAVY = (
    "asyncio",
    "cryptography",
    "grpc",
    "gymnasium",
    "kubernetes",
    "matplotlib",
    "numpy",
    "optuna",
    "prometheus_client",
    "pydantic",
    "scipy",
    "sqlalchemy",
    "structlog",
    "torch",
    "zmq",
)
WITH_GRPC = {"asyncio", "cryptography", "grpc"}
"""Come together: gRPC has both ways to wait, and connections have certificates."""
PROGRAMS = {
    "policy-net": "policy_net.cli",
    "elastic-run": "elastic_runtime.cli",
    "cluster-agent": "cluster_agent.cli",
    "global-learner": "global_learner.cli",
    "policyctl": "global_learner.policyctl.cli",
}
AFTER_EACH = """
import contextlib, io, json, sys
from foundation.command_line import run
from {module} import app

heavy = set({heavy})
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = run(app, "{program}", words)
    print(json.dumps([code, sorted(heavy & {{name.partition(".")[0] for name in sys.modules}})]), flush=True)
"""


def _groups() -> list[list[Command]]:
    """Commands of one program that may bring the same: they can follow one another in one process."""
    groups: dict[tuple[str, frozenset[str]], list[Command]] = {}
    for command in COMMANDS:
        groups.setdefault((command.program, command.brings), []).append(command)
    return list(groups.values())


@pytest.mark.parametrize(
    "commands", _groups(), ids=lambda group: "-".join((group[0].program, *sorted(group[0].brings)))
)
def test_help_and_refusals_load_nothing_that_takes_time(commands: list[Command], tmp_path: Path) -> None:
    program, brings = commands[0].program, commands[0].brings
    allowed = brings | (WITH_GRPC if "grpc" in brings else set())
    code = AFTER_EACH.format(module=PROGRAMS[program], program=program, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([command.words for command in commands]),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
        env=prepare(tmp_path),
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    found = {command.text: tuple(answer) for command, answer in zip(commands, answers, strict=True)}
    assert {text: exit_code for text, (exit_code, _) in found.items()} == {
        command.text: command.exit_code for command in commands
    }
    assert {text: sorted(set(loaded) - allowed) for text, (_, loaded) in found.items()} == {
        command.text: [] for command in commands
    }


def test_every_program_is_measured() -> None:
    assert {command.program for command in COMMANDS} == set(PROGRAMS)
