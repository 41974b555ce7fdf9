"""Options that several commands of `elastic-run` take, and how results are printed."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import typer
import typer.core
from rich.console import Console, RenderableType

from elastic_runtime.control.checks import check_host_and_port
from elastic_runtime.control.client import ControlClient
from elastic_runtime.errors import BadInput, CoordinatorUnreachable
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, jobs_folder, read_json
from elastic_runtime.launcher.job_spec import spec_of
from elastic_runtime.launcher.job_status import credentials_of, read_state
from elastic_runtime.plan import Phase

PROGRAM = "elastic-run"
_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as `elastic-run list` shows it.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        envvar="ELASTIC_JOBS",
        help="Where jobs are kept; $XDG_STATE_HOME/fedl2/jobs, or ~/.local/state/fedl2/jobs, unless given.",
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="A table for people, JSON for programs.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.01, max=86400.0, help="Seconds to wait for the job's answer.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]
TIMEOUT_SECONDS = 10.0


def jobs_of(folder: Path | None) -> Path:
    """Where jobs live, given the option."""
    return jobs_folder(folder, os.environ)


def client_of(folder: JobFolder, timeout_seconds: float) -> ControlClient:
    """The coordinator of a job that runs.

    Raises:
        BadInput: nothing of it runs.
        CoordinatorUnreachable: its launcher lives, its coordinator does not listen yet, or again.
    """
    if holder_of(folder.path) is None:
        phase = read_state(folder).get("phase")
        if phase in (Phase.FINISHED.value, Phase.FAILED.value):
            raise BadInput(f"{folder.name} has {phase}; nothing of it runs that could be asked")
        raise BadInput(f"{folder.name} is not running; `elastic-run resume {folder.name}` goes on with it")
    found = read_json(folder.address_file) or {}
    try:
        address = check_host_and_port(str(found.get("address", "")))
    except BadInput as error:
        raise CoordinatorUnreachable(
            f"{folder.name}: its coordinator is being started; try again in some seconds"
        ) from error
    spec = spec_of(folder.record(), folder.record_file)
    return ControlClient(address, folder.name, credentials_of(folder, spec), timeout_seconds)


def show(output: Output, record: Mapping[str, Any] | list[dict[str, Any]], table: RenderableType) -> None:
    """Print a result in the form that was asked for."""
    if output is Output.JSON:
        print(json.dumps(record, indent=2, allow_nan=False), flush=True)
    else:
        console_of(sys.stdout.isatty()).print(table)


def console_of(terminal: bool) -> Console:
    """Prints text as it is: a script's words or a request's id may hold what rich takes for its markup."""
    return _Console(width=None if terminal else _FILE_WIDTH, markup=False, emoji=False, highlight=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the program's end; rich would end it here, with exit code 1."""
        raise BrokenPipeError


# DOC of elastic_runtime.launcher.commands.options:
# A typer group one of whose commands needs no name: `elastic-run --ps 1 train.py` is `elastic-run run --ps 1 …`.

DEFAULT = "run"


class DefaultCommandGroup(typer.core.TyperGroup):
    """Whatever does not begin with a command's name, and is no option of the group itself, is the default command's.

    Attributes:
        default_command: its name.
    """

    default_command = DEFAULT

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            self._refuse_misspelt(ctx, args[0])
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, ctx: click.Context, word: str) -> None:
        """A word that is no file, no option (`--restarts`), and nearly a command was meant as one."""
        near = [] if word.startswith("-") else difflib.get_close_matches(word, self.commands, n=1)
        if near and not Path(word).exists():
            ctx.fail(f"there is no command and no script '{word}'; did you mean '{near[0]}'?")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Both forms, in the first line of the help."""
        del ctx
        return ["--ps N --workers M SCRIPT [ARGUMENTS]...", "|", "COMMAND [ARGUMENTS]..."]
