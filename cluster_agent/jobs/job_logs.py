"""Lines of a job's log files, as its user sees them: its launcher's, and each task's under the task's name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from foundation.files import open_ordinary
from foundation.growing_file import GrowingFile

_TAIL_BYTES = 4096


class JobLogs:
    """Reads what was written since it was last asked.

    Args:
        launcher: the launcher's log.
        tasks: the folder of the tasks' logs.
        task: of which alone; all where it is empty.
        tail: lines of each that are there at the first reading; None: all.
    """

    def __init__(self, launcher: Path, tasks: Path, task: str = "", tail: int | None = None) -> None:
        self._launcher = launcher
        self._tasks = tasks
        self._task = task
        self._tail = tail
        self._read: dict[Path, GrowingFile] = {}
        self._reported: set[Path] = set()

    @property
    def files(self) -> list[Path]:
        """Those that are there: the launcher's, then tasks' by name."""
        if self._task:
            return [path for path in (self._tasks / f"{self._task}.log",) if path.exists()]
        return [path for path in (self._launcher, *sorted(self._tasks.glob("*.log"))) if path.exists()]

    def read(self, *, last: bool = True) -> Iterator[bytes]:
        """New lines, each with its end.

        Args:
            last: take a line that has no end yet as well.
        """
        for path in self.files:
            prefix = b"" if self._task or path == self._launcher else f"{path.stem} | ".encode()
            file = self._read.setdefault(path, GrowingFile(path, self._tail))
            try:
                for line in file.read(last=last):
                    yield prefix + line
            except OSError as error:  # a script may have put something else there; the others are read all the same
                if path not in self._reported:
                    yield f"{path}: cannot be read: {error.strerror}\n".encode()
                self._reported.add(path)
        self._tail = None  # of what begins from now on everything is new


def with_last_words(facts: dict[str, Any]) -> dict[str, Any]:
    """A job's facts, and `lastLine`: the newest line that any of its workers wrote, None if none did; and its time."""
    written = []
    for path in Path(facts["logs"]).glob("worker-*.log"):
        with contextlib.suppress(OSError):
            written.append((path.stat().st_mtime, path))
    lines = ((line, seconds) for seconds, path in sorted(written, reverse=True) if (line := _last(path)))
    newest = next(lines, None)
    return {**facts, "lastLine": newest and newest[0], "lastLineUnixSeconds": newest and newest[1]}


def _last(path: Path) -> str:
    """The last line of a file that is no launcher's; empty if there is none."""
    try:
        with FileIO(open_ordinary(path)) as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.strip() and not line.startswith("--- worker-")), "")
