"""Client of an agent's jobs, over the Unix socket of the agent that this user runs, and the options of its commands."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cluster_agent.errors import AgentError, AgentUnreachable, JobNotDone, JobRefused
from cluster_agent.job_messages import (
    ANSWER,
    CALL_SECONDS,
    CONTENT,
    END,
    LARGEST_REQUEST_BYTES,
    METHOD,
    REFUSED,
    Facts,
    decode,
    default_socket,
    encode,
)

POLL_SECONDS = 0.5
"""Between two questions of who waits for a job."""
_CHUNK_BYTES = 1 << 16
_RETRY_SECONDS = 0.02
"""Where so many ask at once that the system's queue of connections is full."""


class JobClient:
    """One agent's jobs; each call has a connection of its own, so an agent may be started again between two."""

    def __init__(self, socket: Path | None = None, timeout_seconds: float = CALL_SECONDS) -> None:
        self._socket = socket or default_socket(os.environ)
        self._timeout_seconds = timeout_seconds

    def call(self, method: str, content: Mapping[str, Any]) -> Facts:
        """Ask.

        Raises:
            AgentUnreachable: nobody answers there, or not in time.
            JobRefused: the agent does not want it; its words.
        """
        request = encode({METHOD: method, CONTENT: content})
        if len(request) > LARGEST_REQUEST_BYTES:
            raise JobRefused(f"a request of {len(request):,} bytes: an agent takes {LARGEST_REQUEST_BYTES:,}; say less")
        try:
            message = decode(self._exchange(request))
        except TimeoutError as error:
            raise AgentUnreachable(
                f"{self._socket}: the agent there did not answer within {self._timeout_seconds:g} s; ask again"
            ) from error
        except OSError as error:
            raise AgentUnreachable(
                f"{self._socket}: no agent answers there; start one with `cluster-agent run --config FILE`, or name "
                "its --socket"
            ) from error
        except ValueError as error:
            raise AgentUnreachable(
                f"{self._socket}: what answers there is no agent of this version; start `cluster-agent run` anew"
            ) from error
        if REFUSED in message:
            raise JobRefused(str(message[REFUSED]))
        answer: Facts = message.get(ANSWER, {})
        return answer

    def job(self, name: str) -> Facts:
        """Facts of one job.

        Raises:
            AgentUnreachable, JobRefused: as `call`.
        """
        facts: Facts = self.call("jobs", {"name": name})["jobs"][0]
        return facts

    def _exchange(self, request: bytes) -> bytes:
        """Send a request and read the answer to it.

        Raises:
            TimeoutError: not in time.
            OSError: nobody listens, or whoever did hung up.
        """
        deadline = time.monotonic() + self._timeout_seconds
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            self._connect(connection, deadline)
            connection.settimeout(_left(deadline))
            with contextlib.suppress(BrokenPipeError):  # who refuses at once has said why, and hung up
                connection.sendall(request)
            received = bytearray()
            while not received.endswith(END):
                connection.settimeout(_left(deadline))
                chunk = connection.recv(_CHUNK_BYTES)
                if not chunk:
                    if received:
                        break  # no line of ours: it is looked at all the same
                    raise ConnectionResetError("hung up without an answer")
                received += chunk
            return bytes(received)

    def _connect(self, connection: socket.socket, deadline: float) -> None:
        while True:
            connection.settimeout(_left(deadline))
            try:
                connection.connect(str(self._socket))
            except BlockingIOError:
                time.sleep(min(_RETRY_SECONDS, _left(deadline)))
            else:
                return


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left


def wait_for_end(client: JobClient, name: str) -> dict[str, Any]:
    """A job's facts once it has ended.

    Raises:
        AgentUnreachable: the agent does not answer any more; its jobs train on.
    """
    while True:
        facts = client.job(name)
        if facts["ended"]:
            return facts
        time.sleep(POLL_SECONDS)


def check_done(facts: dict[str, Any]) -> None:
    """See that a job that has ended is done.

    Raises:
        JobNotDone: it has failed, or was cancelled.
    """
    if facts["state"] == "failed":
        raise JobNotDone(f"{facts['name']} has failed: {facts['note']}; see `cluster-agent logs {facts['name']}`")
    if facts["state"] != "done":
        raise JobNotDone(f"{facts['name']} was {facts['state']}")


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
