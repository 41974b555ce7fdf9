"""The page of commands and their options, read from the command lines as typer builds them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

import cluster_agent.cli
import deploy.local.cli
import deploy.train.cli
import elastic_runtime.cli
import global_learner.cli
import global_learner.policyctl.cli
import policy_net.cli

PROGRAMS: tuple[tuple[str, typer.Typer], ...] = (
    ("policy-net", policy_net.cli.app),
    ("global-learner", global_learner.cli.app),
    ("cluster-agent", cluster_agent.cli.app),
    ("elastic-run", elastic_runtime.cli.app),
    ("policyctl", global_learner.policyctl.cli.app),
    ("python -m deploy.local", deploy.local.cli.app),
    ("python -m deploy.train", deploy.train.cli.app),
)

_HEAD = """# Commands

Every command answers `--help` (or `-h`), every program `--version`. Exit codes: 0 done, 1 failed, 2 wrong usage or bad
input, 3 server not reachable. Errors are one line on stderr; `--debug` adds the traceback. This page is made from the
programs by `make reference`.
"""


def commands_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for program, command in all_commands():
        parts.append(
            f"\n## `{program}`\n\n{_sentence(command.help)}\n\n| option | default | meaning |\n|---|---|---|\n"
        )
        parts += [_row(parameter) for parameter in command.params if not _is_help(parameter)]
    return "".join(parts)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be typed, with its words."""
    for program, application in PROGRAMS:
        yield from _leaves(program, typer.main.get_command(application))


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
