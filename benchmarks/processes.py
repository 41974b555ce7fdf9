"""Processes of benchmarks: the pool that runs are spread over, one that is given commands, and what others use."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

GRACE_SECONDS = 30.0
"""For a process whose input has ended, to end too."""
_UTIME_FIELD = 11
"""Counted behind the name in brackets, which may hold spaces; the system's share stands after it."""


def process_pool(processes: int) -> ProcessPoolExecutor:
    """A pool of fresh processes of one torch thread each.

    Spawned, never forked: the threads of torch's OpenMP runtime do not survive a fork, and the first parallel
    operation of a child forked after they started waits for them for ever.
    """
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )


class CommandedModule:
    """A module that runs in a process of its own and answers each command, a line of JSON, with a line of JSON.

    Used as a context, it ends by the end of its input, and by force if it does not heed that.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._module = module
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a process was started without the pipes that were asked for")
        self.to, self.out_of = self._process.stdin, self._process.stdout

    def __enter__(self) -> CommandedModule:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(BrokenPipeError):
            self.to.close()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, command: object) -> Any:
        """The answer to a command.

        Raises:
            RuntimeError: the process ended; what went wrong stands on stderr.
        """
        line = ""
        with suppress(BrokenPipeError):  # it ended before it could read
            self.to.write(json.dumps(command) + "\n")
            self.to.flush()
            line = self.out_of.readline()
        if not line:
            raise RuntimeError(f"{self._module} ended before its answer; what went wrong stands on stderr")
        return json.loads(line)


async def answer_commands(answer: Callable[[Any], Awaitable[str]]) -> None:
    """Answer each line of stdin with a line on stdout, both of JSON: the other side of `CommandedModule`."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(await answer(json.loads(line)), flush=True)


@contextmanager
def polled(poll: Callable[[], None], period_seconds: float) -> Iterator[None]:
    """Call something once a period in a thread of its own, until the context ends or it raises an OSError."""
    ended = threading.Event()

    def run() -> None:
        with suppress(OSError):  # the process has ended, which whoever started it sees to
            while not ended.wait(period_seconds):
                poll()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads together, in seconds to a hundredth; Linux only.

    Raises:
        OSError: there is no such process.
    """
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(behind_name[_UTIME_FIELD]) + int(behind_name[_UTIME_FIELD + 1])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, in bytes; Linux only.

    Raises:
        OSError: there is no such process.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no memory any more")


def percentile(values: Sequence[float], share: float) -> float:
    """Of all values, the one that this share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
