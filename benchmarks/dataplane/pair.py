"""The subject: two processes, of which this one pushes bytes to the other and pulls as many back.

Each side has private memory, filled beforehand. A push has ended when this side knows that the bytes are in the other's
private memory; a pull, when they are in ours.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

DEADLINE_SECONDS = 120.0
Bytes = NDArray[np.uint8]


class Pair(Protocol):
    """Two processes and a way between them."""

    def push(self, size_bytes: int) -> None:
        """Bytes from our private memory into the other's."""

    def pull(self, size_bytes: int) -> None:
        """Bytes from the other's private memory into ours."""

    def cpu_seconds(self) -> float:
        """Processor time that both processes used since they began, with all their threads."""

    def close(self) -> None:
        """End the other process."""


def private_memory(size_bytes: int) -> Bytes:
    """Written once, so that its pages are there."""
    memory: Bytes = np.ones(size_bytes, np.uint8)
    return memory


def start_other(serve: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Runs `serve(connection, *arguments)` in a new interpreter; the connection is for setting up only."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def reported(connection: Connection) -> Any:
    """What the other process said when it was ready.

    Raises:
        TimeoutError: it says nothing.
    """
    if not connection.poll(DEADLINE_SECONDS):
        raise TimeoutError("the other process of a benchmark does not start")
    return connection.recv()


def own_cpu_seconds() -> float:
    """Of this process, all threads."""
    return time.process_time()
