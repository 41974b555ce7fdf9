"""The bars that a training command shows."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def training_progress(console: Console) -> Progress:
    """A bar per task with its `figure` and the time that is left; nothing where the console is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
