"""One mechanism prints results: every command takes the same five forms, or says why it takes none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from typed_commands import prepare

from deploy.reference.commands import all_commands

ROOT = Path(__file__).parents[2]
FORMS = ["table", "wide", "csv", "json", "yaml"]
WITHOUT: dict[str, str] = {
    "cluster-agent logs": "prints lines as they come",
    "elastic-run logs": "prints lines as they come",
    "cluster-agent run": "runs until it is ended",
    "global-learner serve": "runs until it is ended",
    "cluster-agent training-key": "an init container's: its line is for the pod's log",
    "cluster-agent wheel": "its line says where the file is, and what it is for",
    "global-learner admin-secret": "an init container's: its line is for the pod's log",
    "python -m deploy.local": "a demonstration, whose result is a page",
    "python -m deploy.train": "a demonstration, whose result is a page",
}
COMMANDS = {
    words: command for words, command in all_commands() if words not in WITHOUT and not words.endswith(" completion")
}


def forms_of(command: click.Command) -> list[str] | None:
    for parameter in command.params:
        if "--output" in parameter.opts:
            assert parameter.opts == ["-o", "--output"]
            assert isinstance(parameter.type, click.Choice)
            return [str(getattr(choice, "value", choice)) for choice in parameter.type.choices]
    return None


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_prints_a_result_takes_every_form(words: str) -> None:
    assert forms_of(COMMANDS[words]) == FORMS


def test_a_command_without_a_result_has_no_forms() -> None:
    found = {words: forms_of(command) for words, command in all_commands() if words in WITHOUT}
    assert found == dict.fromkeys(WITHOUT)


def test_no_program_has_forms_of_its_own() -> None:
    packages = ("cluster_agent", "elastic_runtime", "foundation", "global_learner", "policy_net")
    with_option = [
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if '"--output"' in path.read_text(encoding="utf-8")
    ]
    assert with_option == ["foundation/output.py"]


@pytest.mark.parametrize(
    ("module", "words", "drawn"),
    [
        ("policy_net.cli", ["policy-net", "inspect", "nothere"], []),
        ("elastic_runtime.cli", ["elastic-run", "status", "nothere"], []),
        ("cluster_agent.cli", ["cluster-agent", "job", "nothere"], []),
        ("global_learner.policyctl.cli", ["policyctl", "fleet", "--context", "nothere"], ["rich"]),
    ],
)
def test_a_refusal_loads_nothing_that_writes_forms(
    module: str, words: list[str], drawn: list[str], tmp_path: Path
) -> None:
    code = (
        "import importlib, json, sys\n"
        "from foundation.command_line import run\n"
        f"code = run(importlib.import_module({module!r}).app, {words[0]!r}, {words[1:]!r})\n"
        "print(json.dumps([code, [name for name in ('csv', 'rich', 'yaml') if name in sys.modules]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
        env=prepare(tmp_path),
    )
    exit_code, loaded = json.loads(done.stdout)
    assert exit_code in (2, 3), done.stderr
    assert loaded == drawn
