"""Options that the commands about jobs share, and how their results are shown.

What draws for people and writes YAML is loaded where it is used: half of the time of a short command is its imports.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient

if TYPE_CHECKING:
    from rich.console import Console

_FILE_WIDTH = 160
_COMPLETION_SECONDS = 2.0


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def names_that_begin(incomplete: str) -> list[str]:
    """Names of jobs, for the shell to complete; none where no agent answers."""
    socket = os.environ.get("CLUSTER_AGENT_SOCKET")
    try:
        with JobClient(Path(socket) if socket else None, _COMPLETION_SECONDS) as client:
            jobs = client.call("jobs", {})["jobs"]
    except AgentError:
        return []
    return [job["name"] for job in jobs if job["name"].startswith(incomplete)]


Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="CLUSTER_AGENT_SOCKET",
        help="The agent's; $XDG_STATE_HOME/fedl2/agent/jobs.sock, or below ~/.local/state, unless given.",
        show_default=False,
    ),
]
Output = Annotated[Form, typer.Option("-o", "--output", help="A table for people, JSON or YAML for programs.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The job's, as `cluster-agent jobs` shows it.", autocompletion=names_that_begin
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
Debug = Annotated[bool, typer.Option(help="Print a traceback with an error.")]


def show(output: Form, record: Any, shown: Any) -> None:
    """Print a result: the record for programs, or what is shown to people."""
    if output is Form.JSON:
        print(json.dumps(record, indent=2), flush=True)
    elif output is Form.YAML:
        import yaml  # noqa: PLC0415

        print(yaml.safe_dump(record, sort_keys=False), end="", flush=True)
    elif isinstance(shown, str):
        print(shown, flush=True)
    else:
        console().print(shown)


def console() -> Console:
    """Where tables go: as wide as the terminal, or as a file's reader can take."""
    from rich.console import Console  # noqa: PLC0415

    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False, highlight=False)
