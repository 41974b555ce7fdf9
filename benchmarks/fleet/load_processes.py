"""The processes of the clusters: started, opened, and let loose all at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from benchmarks.fleet.load import Done, Opened, Pace
from benchmarks.processes import CommandedModule


class LoadProcesses:
    """So many processes, over which the clusters are dealt; use within `load_processes`."""

    def __init__(self, running: list[CommandedModule]) -> None:
        self._running = running

    def open(self, address: str, identities: dict[str, str]) -> None:
        """Connect and register every cluster."""
        dealt: list[dict[str, str]] = [{} for _ in self._running]
        for number, (cluster, path) in enumerate(identities.items()):
            dealt[number % len(dealt)][cluster] = path
        self._all([asdict(Opened(address, share)) for share in dealt])

    def run(self, pace: Pace) -> Done:
        """Let the clusters push; what all of them met, together."""
        done = Done()
        for answer in self._all([asdict(pace)] * len(self._running)):
            done.add(answer)
        return done

    def _all(self, commands: list[dict[str, Any]]) -> list[Any]:
        with ThreadPoolExecutor(len(self._running)) as pool:
            return list(pool.map(CommandedModule.ask, self._running, commands))


@contextlib.contextmanager
def load_processes(spec_json: str, count: int) -> Iterator[LoadProcesses]:
    """Start the processes; they end with the context."""
    with contextlib.ExitStack() as stack:
        running = (CommandedModule("benchmarks.fleet.load", spec_json) for _ in range(count))
        yield LoadProcesses([stack.enter_context(process) for process in running])
