"""The program `elastic-run`: starts elastic training jobs on this machine, resizes them, and shows how they do.

Its sub-commands stand in `launcher/commands`. Those that ask a job (`resize`, `status`, `suspend`, `stop`) go to the
job's coordinator over the control plane; those that start one (`run`, `resume`) become its launcher and stay until it
has ended; `logs` and `delete` need its folder alone. Exit codes and the line about an error are those of all our
programs.
"""

from __future__ import annotations

import inspect

import typer

from elastic_runtime.launcher.commands.folders import delete, logs
from elastic_runtime.launcher.commands.launch import resume, run
from elastic_runtime.launcher.commands.options import DEFAULT, PROGRAM, DefaultCommandGroup
from elastic_runtime.launcher.commands.requests import resize, stop, suspend
from elastic_runtime.launcher.commands.status import list_jobs, status
from foundation.command_line import run as run_program
from foundation.completion import COMMAND, completion_command
from foundation.program_life import end

app = typer.Typer(
    cls=DefaultCommandGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Trains a PyTorch script with parameter servers and workers that come and go while it trains.",
    epilog="Without a command's name it is `run`: `elastic-run --ps 1 --workers 2 train.py --seed 7`.",
)

# What stands behind the script is the script's own, options included.
app.command(DEFAULT, context_settings={"allow_interspersed_args": False})(run)
app.command("resize")(resize)
app.command("status")(status)
app.command("logs")(logs)
app.command("suspend")(suspend)
app.command("resume")(resume)
app.command("stop")(stop)
app.command(
    "cancel",
    help=f"{inspect.getdoc(stop)} The same as `stop`; the `cancel` of the other programs is for good.",
)(stop)
app.command("delete")(delete)
app.command("list")(list_jobs)
app.command(COMMAND)(completion_command(app, PROGRAM))


def main() -> None:
    """Entry point of the console script."""
    end(run_program(app, PROGRAM))


if __name__ == "__main__":
    main()
