"""Progress of a training command: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0
"""Between two lines: few in a log of an hour, and soon enough for whoever wonders whether it hangs."""


class _Lines(Progress):
    """Draws nothing, and says in a line every `LINE_SECONDS` how far the task is that moved last."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__(console=console, disable=True)
        self._clock = clock
        self._next = clock() + LINE_SECONDS

    def update(self, task_id: TaskID, *values: Any, **fields: Any) -> None:
        """As Progress does."""
        super().update(task_id, *values, **fields)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As Progress does."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LINE_SECONDS
        task = next(task for task in self.tasks if task.id == task_id)
        done = f" {task.completed:.0f} of {task.total:.0f}" if task.total else ""
        figure = task.fields.get("figure") or ""
        self.console.print(
            f"{task.description}{done}" + (f", {figure}" if figure else ""),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def training_progress(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
    """A bar per task with its `figure` and the time that is left; lines where the console is no terminal."""
    if not console.is_terminal:
        return _Lines(console, clock)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeRemainingColumn(),
        console=console,
    )
