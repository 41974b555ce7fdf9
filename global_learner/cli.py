"""Program `global-learner`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from foundation.command_line import leave, run
from global_learner.service.server import serve
from global_learner.settings import read_settings
from global_learner.telemetry import set_up_logging

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The central learner: applies the gradients of all clusters to one policy and publishes its versions.",
)

Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]


@app.callback()
def _program() -> None:
    """Keep the sub-command's name although there is only one."""


@app.command("serve")
def serve_command(
    config: Annotated[Path, typer.Option("--config", help="YAML file; see docs/guide/learner.md.")],
    debug: Debug = False,
) -> None:
    """Serve until SIGTERM; goes on where it ended, however it ended."""
    del debug  # The error boundary looks for the flag itself.
    settings = read_settings(config)
    set_up_logging(settings.telemetry.log_level)
    os.umask(0o077)  # whatever it writes is its own user's
    asyncio.run(serve(settings))


def main() -> None:
    """Entry point of the console script."""
    leave(run(app, "global-learner"))


if __name__ == "__main__":
    main()
