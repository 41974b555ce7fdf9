"""Options that the commands about jobs share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient

_COMPLETION_SECONDS = 2.0


def names_that_begin(incomplete: str) -> list[str]:
    """Names of jobs, for the shell to complete; none where no agent answers."""
    socket = os.environ.get("CLUSTER_AGENT_SOCKET")
    try:
        client = JobClient(Path(socket) if socket else None, _COMPLETION_SECONDS)
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
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The job's, as `cluster-agent jobs` shows it.", autocompletion=names_that_begin
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help="The jobs', as `cluster-agent jobs` shows them.", autocompletion=names_that_begin
    ),
]
Found = TypeVar("Found")
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]


def changing_polls(ask: Callable[[], Found], pause_seconds: float) -> Iterator[Found]:
    """What is found now and whenever it has changed, without an end; whatever `ask` raises ends it.

    On a terminal each look, as it may say how long ago something was.
    """
    before: Found | None = None
    while True:
        found = ask()
        if sys.stdout.isatty() or found != before:
            yield found
        before = found
        time.sleep(pause_seconds)
