"""The page of commands and their options, read from the command lines as typer builds them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

import cluster_agent.cli
import deploy.local.demo
import deploy.train.__main__
import elastic_runtime.cli
import global_learner.cli
import global_learner.policyctl.cli
import policy_net.cli
from foundation.command_line import command_of

PROGRAMS: tuple[tuple[str, typer.Typer], ...] = (
    ("policy-net", policy_net.cli.app),
    ("global-learner", global_learner.cli.app),
    ("cluster-agent", cluster_agent.cli.app),
    ("elastic-run", elastic_runtime.cli.app),
    ("policyctl", global_learner.policyctl.cli.app),
    ("python -m deploy.local", deploy.local.demo.app),
    ("python -m deploy.train", deploy.train.__main__.app),
)

_HEAD = """# Commands

Every command answers `--help` (or `-h`), every program `--version`. Exit codes: 0 done, 1 failed, 2 wrong usage or bad
input, 3 server not reachable. Errors are one line on stderr; `--debug` adds the traceback. Options that several
commands of a program take alike stand once, before its commands. This page is made by `make reference`.
"""
_TABLE = "| option | default | meaning |\n|---|---|---|\n"
_SHARED_BY = 3
"""Commands of a program with the same row: from so many on it stands once."""


def commands_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for program, application in PROGRAMS:
        commands = list(_leaves(program, command_of(application)))
        shared = _shared_rows([command for _, command in commands])
        if shared:
            parts.append(f"\n## `{program}`: options of several commands\n\n{_TABLE}{''.join(shared)}")
        for words, command in commands:
            rows = {_row(parameter): parameter for parameter in command.params if not _is_help(parameter)}
            parts.append(f"\n## `{words}`\n\n{_sentence(command.help)}\n")
            own = [row for row in rows if row not in shared]
            if own:
                parts.append(f"\n{_TABLE}{''.join(own)}")
            also = [f"`{_shown_name(parameter)}`" for row, parameter in rows.items() if row in shared]
            if also:
                parts.append(f"\n{'Also' if own else 'Takes'} {' '.join(also)}\n")
    return "".join(parts)


def _shared_rows(commands: list[click.Command]) -> list[str]:
    """Rows that several commands have, in the order of the page; of two with one name that which more of them have."""
    count: dict[str, int] = {}
    names: dict[str, str] = {}
    for command in commands:
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not _is_help(parameter):
                row = _row(parameter)
                count[row] = count.get(row, 0) + 1
                names[row] = _shown_name(parameter)
    best = {
        name: max((row for row in names if names[row] == name), key=lambda row: count[row]) for name in names.values()
    }
    return [row for row in names if count[row] >= _SHARED_BY and best[names[row]] == row]


def _shown_name(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be typed, with its words."""
    for program, application in PROGRAMS:
        yield from _leaves(program, command_of(application))


def _leaves(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        unnamed = getattr(command, "default_command", None)  # the one that needs no name
        for name, child in command.commands.items():
            yield from _leaves(words if name == unnamed else f"{words} {name}", child)
    else:
        yield words, command


def _row(parameter: click.Parameter) -> str:
    meaning = _sentence(getattr(parameter, "help", None))
    if isinstance(parameter, click.Argument):
        needed = "required" if parameter.required else "none"
        return f"| `{parameter.make_metavar(click.Context(click.Command('x')))}` | {needed} | {meaning} |\n"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.required:
        default = "required"
    else:
        value = parameter.default
        shown = getattr(value, "value", value)
        default = "none" if value is None or value == "" or shown is False else f"`{shown}`"
    return f"| {names} | {default} | {meaning} |\n"


def _is_help(parameter: click.Parameter) -> bool:
    return "--help" in parameter.opts


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
