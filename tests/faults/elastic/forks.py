"""The tests' side of `fork_server`."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_START_SECONDS = 100.0


class Forks:
    """Starts processes and knows which have ended, and how.

    Args:
        preload: modules that the processes need not import, with blanks between.
    """

    def __init__(self, preload: str = "") -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GRPC_ENABLE_FORK_SUPPORT": "0", "PRELOAD": preload},
        )
        self._pending = b""
        self._codes: dict[int, int] = {}

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.kill()
        self._server.wait()
        self._server.stdout.close()

    def start(self, program: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Fork a process; its number."""
        assert self._server.stdin is not None
        order = {"program": program, "arguments": list(arguments), "environment": dict(environment), "log": str(log)}
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for news in self._read(0.1):
                if "started" in news:
                    return int(news["started"])
        raise AssertionError(f"{program} was not forked within {_START_SECONDS} s")

    def exit_code(self, pid: int) -> int | None:
        """How a process ended; None while it runs."""
        self._read(0.0)
        return self._codes.get(pid)

    def _read(self, wait_seconds: float) -> list[dict[str, Any]]:
        assert self._server.stdout is not None
        news = []
        while select.select([self._server.stdout], [], [], wait_seconds)[0]:
            data = self._server.stdout.read(65536)
            assert data, "the process that forks all others has ended; see its output"
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                row = json.loads(line)
                news.append(row)
                if "started" in row:  # the number may have been another's, long ago: the kernel goes round
                    self._codes.pop(row["started"], None)
                if "ended" in row:
                    self._codes[row["ended"]] = row["code"]
            wait_seconds = 0.0
        return news
