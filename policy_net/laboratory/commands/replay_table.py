"""Tables of a replay on the terminal: the policies' figures, and those of users, accounts and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foundation.figures import Unit, unit_for
from foundation.tables import Column, FittedTable
from policy_net.laboratory.report.comparison import Recorded
from policy_net.laboratory.report.tables import TextTable

RECORDED = "(recorded)"
"""Row of the record; no policy has this name."""
_COLUMNS = {
    "policy": Column("policy", 0),
    "completed": Column("jobs\ndone", 3),
    "avg_wait_seconds": Column("avg wait\n[{unit}]", 1),
    "avg_jct_seconds": Column("avg JCT\n[{unit}]", 0),
    "p99_jct_seconds": Column("p99 JCT\n[{unit}]", 2),
    "max_jct_seconds": Column("max JCT\n[{unit}]", 6),
    "makespan_seconds": Column("makespan\n[{unit}]", 7),
    "gpu_utilization": Column("GPUs\nheld", 5),
    "gpu_hours": Column("GPU-\nhours", 4),
}
_TIMINGS = {
    "inference_p50_us": Column("infer\n[µs]", 9),
    "slot_decide_p99_ms": Column("decide\n[ms]", 8),
    "wall_seconds": Column("wall\n[s]", 10),
}
_HOURS_SECONDS = 4 * 3600.0
"""Averages of as much and more are in hours."""
_OWNER_COLUMNS_LEFT_OUT = (0, 4, 5, 3, 0, 0, 0, 0, 1, 2)
"""By the columns of the report's table: name, jobs, GPU-hours, recorded wait, waits, completions, change, later.

Both sides of a change stay, and with the waits the marks of who waits longer.
"""


def replay_table(
    title: str, rows: Sequence[Mapping[str, Any]], *, recorded: Recorded | None = None, timing: bool = False
) -> FittedTable:
    """The policies' figures, after those of the record; with `timing` also the times of our own code."""
    columns = _COLUMNS | (_TIMINGS if timing else {})
    unit = _unit(rows, recorded)
    lines = [] if recorded is None else [_recorded_cells(columns, recorded, unit)]
    lines += [[_cell(key, row, unit) for key in columns] for row in rows]
    headed = [replace(column, heading=column.heading.replace("{unit}", unit.name)) for column in columns.values()]
    return FittedTable(title, headed, lines)


def _unit(rows: Sequence[Mapping[str, Any]], recorded: Recorded | None) -> Unit:
    """Unit of all times of a table: that of the averages, hours at most."""
    averages = [row["avg_jct_seconds"] for row in rows] + ([] if recorded is None else [recorded.avg_jct_seconds])
    known = [min(seconds, _HOURS_SECONDS) for seconds in averages if seconds is not None]
    return unit_for(*known) if known else unit_for(_HOURS_SECONDS)


def owner_table_on_terminal(title: str, table: TextTable) -> FittedTable:
    """The report's table of users, accounts or partitions."""
    columns = [
        Column(heading.replace("Completion,", "JCT,").replace(" ", "\n").replace("-", "-\n"), left_out)
        for heading, left_out in zip(table.headings, _OWNER_COLUMNS_LEFT_OUT, strict=True)
    ]
    return FittedTable(title, columns, [(row.name, *row.cells) for row in table.rows], list(table.legend))


def _recorded_cells(columns: Mapping[str, Column], recorded: Recorded, unit: Unit) -> list[str]:
    known = {
        "policy": RECORDED,
        "avg_wait_seconds": _time(recorded.avg_wait_seconds, unit),
        "avg_jct_seconds": _time(recorded.avg_jct_seconds, unit),
        "p99_jct_seconds": _time(recorded.p99_jct_seconds, unit),
    }
    return [known.get(key, "–") for key in columns]


def _cell(key: str, row: Mapping[str, Any], unit: Unit) -> str:
    value = row[key]
    if value is None:
        return "–"
    if key == "completed":
        return f"{value}/{row['jobs']}"
    if key in _COLUMNS and key.endswith("_seconds"):
        return _time(value, unit)
    if key == "gpu_hours":
        return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
    if key == "gpu_utilization":
        return f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _time(seconds: float | None, unit: Unit) -> str:
    return "–" if seconds is None else f"{seconds / unit.seconds:.2f}"
