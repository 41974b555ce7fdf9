"""The program `elastic-run`: starts elastic training jobs on this machine, resizes them, and shows how they do."""

from __future__ import annotations

import sys

import typer

from elastic_runtime.cli_errors import run as run_program
from elastic_runtime.errors import EXIT_CODES
from elastic_runtime.launcher.commands.launch import resume, run
from elastic_runtime.launcher.commands.options import DEFAULT, PROGRAM, DefaultCommandGroup
from elastic_runtime.launcher.commands.requests import resize, stop, suspend
from elastic_runtime.launcher.commands.status import list_jobs, status

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
app.command("suspend")(suspend)
app.command("resume")(resume)
app.command("stop")(stop)
app.command("list")(list_jobs)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run_program(app, PROGRAM, EXIT_CODES))


if __name__ == "__main__":
    main()
