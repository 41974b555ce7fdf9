"""Views of jobs for people: a table of all, and one in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from foundation.figures import duration, percent

_EMPTY = "–"


def job_table(jobs: Sequence[dict[str, Any]]) -> Table:
    """All jobs, a line each, in the order of their submission."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "type", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("workers", "ps", "progress", "waited", "running", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for job in jobs:
        table.add_row(
            job["name"],
            job["modelType"],
            job["state"],
            str(job["workers"] or _EMPTY),
            str(job["ps"] or _EMPTY),
            _EMPTY if job["progress"] is None else percent(job["progress"]),
            duration(job["waitedSeconds"]),
            duration(job["runSeconds"]),
            duration(job["ageSeconds"]),
            job["note"],
        )
    return table


def one_job(job: dict[str, Any]) -> Table:
    """Everything about one job."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in job.items():
        shown = percent(value) if key == "progress" and value is not None else value
        if key.endswith("Seconds"):
            shown = duration(value)
        table.add_row(key.removesuffix("Seconds"), _EMPTY if shown in (None, "") else str(shown))
    return table
