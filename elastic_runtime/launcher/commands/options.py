"""Options that several commands of `elastic-run` take, and the command that needs no name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import click
import typer
import typer.core

from elastic_runtime.control.checks import MOST_TASKS
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.job_folder import JobFolder, all_jobs, check_not_kept, jobs_folder, open_job
from foundation.command_line import VERSION_OPTION
from foundation.text import nearest

PROGRAM = "elastic-run"
DEFAULT = "run"
"""`elastic-run --ps 1 train.py` is `elastic-run run --ps 1 train.py`."""


def names_that_begin(context: click.Context, incomplete: str) -> list[str]:
    """Names of jobs, for the shell to complete; none where there is no folder of jobs."""
    stated = context.params.get("folder") or os.environ.get("ELASTIC_JOBS")
    try:
        jobs = all_jobs(jobs_of(Path(stated) if stated else None))
    except BadInput:
        return []
    return [job.name for job in jobs if job.name.startswith(incomplete)]


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job's name, as `elastic-run list` shows it.", autocompletion=names_that_begin
    ),
]
Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...", help="The jobs' names, as `elastic-run list` shows them.", autocompletion=names_that_begin
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        envvar="ELASTIC_JOBS",
        help="Where jobs are kept; $XDG_STATE_HOME/fedl2/jobs, or ~/.local/state/fedl2/jobs, unless given.",
    ),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Also a job that a cluster agent keeps; the agent does not learn of it.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.01, max=86400.0, help="Seconds to wait for the job's answer.")
]
TIMEOUT_SECONDS = 10.0


class TaskCount(click.IntRange):
    """A number of tasks, as the whole size. A sign is refused, as `+1` reads like one more.

    Relative sizes are none, as a request may be sent again, and another change may come in between.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        if isinstance(value, str) and value.strip()[:1] in ("+", "-"):
            self.fail(f"{value!r} has a sign; give the number that the job is to have in all, as in 3", param, ctx)
        return super().convert(value, param, ctx)


def open_own_job(folder: Path | None, name: str, *instead: str, anyway: bool) -> JobFolder:
    """The folder of a job that is to be changed.

    Args:
        instead: commands of `cluster-agent` that fit a job that an agent keeps.

    Raises:
        NoSuchJob: there is none of that name.
        BadInput: an agent keeps it.
    """
    job = open_job(jobs_of(folder), name)
    check_not_kept(job, instead, os.environ, anyway=anyway)
    return job


TASKS = TaskCount(0, MOST_TASKS)


def jobs_of(folder: Path | None) -> Path:
    """Where jobs live, given the option."""
    return jobs_folder(folder, os.environ)


class DefaultCommandGroup(typer.core.TyperGroup):
    """Commands; words that begin with no command's name and no option of the group are the default command's."""

    default_command = DEFAULT

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        if args and args[0] not in self.commands and args[0] not in (*ctx.help_option_names, VERSION_OPTION):
            self._refuse_misspelt(ctx, args[0])
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, ctx: click.Context, word: str) -> None:
        """A word that is no file, no option (`--restarts`), and nearly a command was meant as one."""
        near = None if word.startswith("-") else nearest(word, self.commands)
        if near is not None and not Path(word).exists():
            ctx.fail(f"there is no command and no script '{word}'; did you mean '{near}'?")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Both forms, in the first line of the help."""
        del ctx
        return ["--ps N --workers M SCRIPT [ARGUMENTS]...", "|", "COMMAND [ARGUMENTS]..."]
