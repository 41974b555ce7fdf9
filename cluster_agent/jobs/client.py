"""Client of an agent's jobs, over the Unix socket of the agent that this user runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from cluster_agent.errors import AgentUnreachable, JobNotDone, JobRefused
from cluster_agent.job_messages import CALL_SECONDS, SERVICE, Facts, decode, default_socket, encode

LOOK_SECONDS = 0.5
"""Between two questions of who waits for a job."""
_REFUSED = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class JobClient:
    """One agent's jobs.

    Args:
        socket: of the agent; the usual one unless given.
        timeout_seconds: of every call.
    """

    def __init__(self, socket: Path | None = None, timeout_seconds: float = CALL_SECONDS) -> None:
        self._socket = socket or default_socket(os.environ)
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(f"unix:{self._socket.absolute()}")

    def __enter__(self) -> JobClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def call(self, method: str, content: Mapping[str, Any]) -> Facts:
        """Ask.

        Raises:
            AgentUnreachable: nobody answers there.
            JobRefused: the agent does not want it; its words.
        """
        ask = self._channel.unary_unary(f"/{SERVICE}/{method}", request_serializer=encode, response_deserializer=decode)
        try:
            answer: Facts = ask(content, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            if error.code() in _REFUSED:
                raise JobRefused(error.details()) from error
            raise AgentUnreachable(
                f"{self._socket}: no agent answers there; start one with `cluster-agent run --config FILE`, or name "
                "its --socket"
            ) from error
        return answer


def wait_for_end(client: JobClient, name: str) -> dict[str, Any]:
    """A job's facts once it has ended.

    Raises:
        AgentUnreachable: the agent does not answer any more; its jobs train on.
    """
    while True:
        facts: dict[str, Any] = client.call("jobs", {"name": name})["jobs"][0]
        if facts["ended"]:
            return facts
        time.sleep(LOOK_SECONDS)


def check_done(facts: dict[str, Any]) -> None:
    """See that a job that has ended is done.

    Raises:
        JobNotDone: it has failed, or was cancelled.
    """
    if facts["state"] == "failed":
        raise JobNotDone(f"{facts['name']} has failed: {facts['note']}; see `cluster-agent logs {facts['name']}`")
    if facts["state"] != "done":
        raise JobNotDone(f"{facts['name']} was {facts['state']}")
