"""The clusters' process: started, and given commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType

from benchmarks.processes import end_by_input
from benchmarks.push.load import Figures, Load
from benchmarks.push.servers import Server

WARM_SECONDS = 0.5
"""Connections are open and every program is warm by then."""


class LoadProcess:
    """The process of the clusters; one command at a time."""

    def __init__(self, spec_json: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.push.load", spec_json],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a process was started without the pipes that were asked for")
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_by_input(self._process)

    def run(
        self, server: Server, clusters: Sequence[str], seconds: float, *, echo: bool, messages: bool = False
    ) -> Figures:
        """Put a server under load for a while; `echo` and `messages` as in `Load`.

        Raises:
            RuntimeError: the clusters' process failed; what went wrong stands on stderr.
        """
        load = Load(
            server.address, server.identities, list(clusters), server.pid, seconds, WARM_SECONDS, echo, messages
        )
        self._to.write(json.dumps(asdict(load)) + "\n")
        self._to.flush()
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the clusters of {server.name} failed")
        return Figures(**json.loads(line))
