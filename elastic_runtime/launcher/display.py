"""Display of a running job for its user: the first worker's lines behind its name, and the launcher's own.

A terminal may be slow, or stopped; nobody waits for it. Lines that find no room are counted and left out (the task's
log has them).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Container, Iterable
from typing import TextIO

from elastic_runtime.launcher.task_process import Stream

_CLOSE_SECONDS = 2.0


class Display:
    """Printer in a thread of its own: the first worker's stdout, its stderr and what the launcher says."""

    def __init__(self, program: str, out: TextIO, errors: TextIO, most_lines: int, quiet: bool = False) -> None:
        self._program = program
        self._streams = {Stream.OUT: out, Stream.ERROR: errors}
        self._lines: queue.Queue[tuple[Stream, str] | None] = queue.Queue(most_lines)
        self._left_out = 0
        self._quiet = quiet
        self._lock = threading.Lock()
        self._shown: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._print_all, name="display", daemon=True)
        self._thread.start()

    def on_workers(self, workers: Iterable[str], staying: Container[str]) -> None:
        """Show the running worker with the lowest number.

        If it does not stay in the job, the next one that does is shown too; it may be the job's first by now.
        """
        by_number = sorted(workers, key=number_of)
        shown = by_number[:1] + [worker for worker in by_number if worker in staying][:1]
        if shown:
            self._shown = frozenset(shown)

    def shows(self, task: str) -> bool:
        """Whether a task's lines are shown, so that its user has read its last one."""
        return not self._quiet and task in self._shown

    def show(self, task: str, stream: Stream, line: bytes) -> None:
        """Show a line of a task; never blocks."""
        if self.shows(task):
            self._put(stream, f"{task} | {line.decode('utf-8', 'replace')}")

    def report(self, message: str) -> None:
        """Show a line of the launcher; never blocks."""
        self._put(Stream.ERROR, f"{self._program}: {message}")

    def close(self) -> None:
        """Print what waits, as far as the terminal takes it."""
        try:
            if self._left_out:
                self._lines.put((Stream.ERROR, self._missing()), timeout=_CLOSE_SECONDS)
            self._lines.put(None, timeout=_CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(_CLOSE_SECONDS)

    def _put(self, stream: Stream, text: str) -> None:
        with self._lock:
            try:
                if self._left_out:
                    self._lines.put_nowait((Stream.ERROR, self._missing()))
                    self._left_out = 0
                self._lines.put_nowait((stream, text))
            except queue.Full:
                self._left_out += 1

    def _missing(self) -> str:
        return f"{self._program}: {self._left_out} lines are in the logs only"

    def _print_all(self) -> None:
        while (line := self._lines.get()) is not None:
            stream, text = line
            try:
                print(text, file=self._streams[stream], flush=True)
            except (OSError, ValueError):
                continue  # the reader has gone; the logs have it


def number_of(task: str) -> int:
    """The number in a task's name."""
    number = task.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
