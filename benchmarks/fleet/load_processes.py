"""The processes of the clusters: started, opened, and let loose all at once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from benchmarks.fleet.load import Done, Opened, Pace
from benchmarks.processes import end_by_input


class LoadFailed(RuntimeError):
    """A process of clusters ended; what went wrong stands on stderr."""


class LoadProcesses:
    """So many processes, over which the clusters are dealt; use within `load_processes`."""

    def __init__(self, running: list[subprocess.Popen[str]]) -> None:
        self._running = running

    def open(self, address: str, identities: dict[str, str]) -> None:
        """Connect and register every cluster.

        Raises:
            LoadFailed: a process ended.
        """
        dealt: list[dict[str, str]] = [{} for _ in self._running]
        for number, (cluster, path) in enumerate(identities.items()):
            dealt[number % len(dealt)][cluster] = path
        self._all([asdict(Opened(address, share)) for share in dealt])

    def run(self, pace: Pace) -> Done:
        """Let the clusters push; what all of them met, together.

        Raises:
            LoadFailed: a process ended.
        """
        done = Done()
        for answer in self._all([asdict(pace)] * len(self._running)):
            done.add(answer)
        return done

    def _all(self, commands: list[dict[str, Any]]) -> list[Any]:
        with ThreadPoolExecutor(len(self._running)) as pool:
            return list(pool.map(_ask, self._running, commands))


@contextlib.contextmanager
def load_processes(
    spec_json: str, count: int, popen: Callable[..., subprocess.Popen[str]] = subprocess.Popen
) -> Iterator[LoadProcesses]:
    """Start the processes; they end with the context."""
    with contextlib.ExitStack() as stack:
        running = []
        for _ in range(count):
            process = popen(
                [sys.executable, "-m", "benchmarks.fleet.load", spec_json],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(end_by_input, process)
            running.append(process)
        yield LoadProcesses(running)


def _ask(process: subprocess.Popen[str], command: dict[str, Any]) -> Any:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process was started without the pipes that were asked for")
    process.stdin.write(json.dumps(command) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise LoadFailed("a process of clusters ended before its answer; see above")
    return json.loads(line)
