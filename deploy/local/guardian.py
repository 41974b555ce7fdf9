"""Guardian of a demonstration: a process of its own that ends what the demonstration started once that is gone.

A demonstration ends its processes itself, unless it is killed; and jobs of an agent outlive it by design, however the
demonstration ends. So everything it starts carries its mark, and the guardian, which waits for the end of its standard
input, kills whatever carries that mark then. Should the guardian be killed too, the next demonstration in the same
folder does it first.

Usage: python -m deploy.local.guardian MARK
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from foundation.kinship import end_marked

VARIABLE = "FEDL2_DEMO_RUN"
_SWEEPS = 100
_BETWEEN_SWEEPS_SECONDS = 0.05
"""For what was just being started while the others were killed."""


class Guardian:
    """The guardian's handle; it does its work when this process ends, or at `release`.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.mark = f"{_folder_mark(folder)}{os.getpid()}-{time.time_ns():x}"
        self._process = subprocess.Popen(  # noqa: S603  (our own program)
            [sys.executable, "-m", "deploy.local.guardian", self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # neither Ctrl-C nor the end of a terminal reaches it
        )

    def release(self, wait_seconds: float = 60.0) -> None:
        """Let it end what is left, and itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_leftovers(folder: Path) -> int:
    """Kill what an earlier demonstration in this folder left behind, as nobody guarded it; how many there were."""
    return _end(_folder_mark(folder), prefix=True)


def _folder_mark(folder: Path) -> str:
    return f"{folder.resolve()}#"


def _end(mark: str, *, prefix: bool = False) -> int:
    ended = 0
    for _ in range(_SWEEPS):
        found = end_marked(VARIABLE, mark, prefix=prefix)
        if not found:
            break
        ended += found
        time.sleep(_BETWEEN_SWEEPS_SECONDS)
    return ended


def main() -> None:
    """Wait for the end of standard input, and end what carries the mark."""
    while sys.stdin.buffer.read(4096):
        pass
    _end(sys.argv[1])


if __name__ == "__main__":
    main()
