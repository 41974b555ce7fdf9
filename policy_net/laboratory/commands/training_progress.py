"""Progress of a training command: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.figures import duration

LINE_SECONDS = 10.0
"""Between two lines: few in a log of an hour, and soon enough to see that it does not hang."""


class _Lines(Progress):
    """Prints a line every `LINE_SECONDS` on the task that moved last, and draws nothing.

    Where nothing moves for longer, as within one long trial, a thread prints the time since the beginning.
    """

    def __init__(self, console: Console, clock: Callable[[], float], poll_seconds: float) -> None:
        super().__init__(console=console, disable=True)
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._began = clock()
        self._next = self._began + LINE_SECONDS
        self._newest: TaskID | None = None
        self._reporting = threading.Lock()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._poll, name="progress", daemon=True)

    def start(self) -> None:
        """As Progress does."""
        super().start()
        self._watch.start()

    def stop(self) -> None:
        """As Progress does."""
        self._over.set()
        self._watch.join()
        super().stop()

    def add_task(self, *values: Any, **fields: Any) -> TaskID:
        """As Progress does."""
        self._newest = super().add_task(*values, **fields)
        return self._newest

    def update(self, task_id: TaskID, *values: Any, **fields: Any) -> None:
        """As Progress does."""
        super().update(task_id, *values, **fields)
        self._report(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As Progress does."""
        super().advance(task_id, advance)
        self._report(task_id)

    def _poll(self) -> None:
        while not self._over.wait(self._poll_seconds):
            if self._newest is not None:
                self._report(self._newest, f", {duration(self._clock() - self._began)} so far")

    def _report(self, task_id: TaskID, more: str = "") -> None:
        with self._reporting:
            now = self._clock()
            self._newest = task_id
            if now < self._next:
                return
            self._next = now + LINE_SECONDS
        task = next(task for task in self.tasks if task.id == task_id)
        done = f" {task.completed:.0f} of {task.total:.0f}" if task.total else ""
        figure = task.fields.get("figure") or ""
        self.console.print(
            f"{task.description}{done}" + (f", {figure}" if figure else "") + more,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def training_progress(
    console: Console, clock: Callable[[], float] = time.monotonic, poll_seconds: float = LINE_SECONDS
) -> Progress:
    """A bar per task with its `figure` and its times; lines where the console is no terminal."""
    if not console.is_terminal:
        return _Lines(console, clock, poll_seconds)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
