"""Tables of a replay on the terminal: the policies' figures, and those of users, accounts and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foundation.tables import Column, FittedTable
from policy_net.laboratory.report.comparison import Recorded
from policy_net.laboratory.report.tables import TextTable

RECORDED = "(recorded)"
"""The row of what really happened; no policy has this name."""

_COLUMNS = {
    "policy": Column("policy", 0),
    "completed": Column("jobs\ndone", 3),
    "avg_wait_seconds": Column("avg wait\n[h]", 1),
    "avg_jct_seconds": Column("avg JCT\n[h]", 0),
    "p99_jct_seconds": Column("p99 JCT\n[h]", 2),
    "max_jct_seconds": Column("max JCT\n[h]", 6),
    "makespan_seconds": Column("makespan\n[h]", 7),
    "gpu_utilization": Column("GPUs\nheld", 5),
    "gpu_hours": Column("GPU-\nhours", 4),
}
_TIMINGS = {
    "inference_p50_us": Column("infer\n[µs]", 9),
    "slot_decide_p99_ms": Column("decide\n[ms]", 8),
    "wall_seconds": Column("wall\n[s]", 10),
}
_OWNER_COLUMNS_LEFT_OUT = (0, 4, 5, 8, 2, 1, 6, 0, 3, 7)
"""In the order of the report's table: its name, jobs, GPU-hours, recorded wait, waits, completions, change, later."""


def replay_table(
    title: str, rows: Sequence[Mapping[str, Any]], *, recorded: Recorded | None = None, timing: bool = False
) -> FittedTable:
    """The policies' figures, after those of the record where there are any.

    Args:
        timing: whether it is shown how long our own code took.
    """
    columns = _COLUMNS | (_TIMINGS if timing else {})
    lines = [] if recorded is None else [_recorded_cells(columns, recorded)]
    lines += [[_cell(key, column, row) for key, column in columns.items()] for row in rows]
    return FittedTable(title, list(columns.values()), lines)


def owner_table_on_terminal(title: str, table: TextTable) -> FittedTable:
    """The report's table of users, accounts or partitions."""
    columns = [
        Column(heading.replace(" ", "\n"), left_out)
        for heading, left_out in zip(table.headings, _OWNER_COLUMNS_LEFT_OUT, strict=True)
    ]
    return FittedTable(title, columns, [(row.name, *row.cells) for row in table.rows])


def _recorded_cells(columns: Mapping[str, Column], recorded: Recorded) -> list[str]:
    known = {
        "policy": RECORDED,
        "avg_wait_seconds": _hours(recorded.avg_wait_seconds),
        "avg_jct_seconds": _hours(recorded.avg_jct_seconds),
        "p99_jct_seconds": _hours(recorded.p99_jct_seconds),
    }
    return [known.get(key, "–") for key in columns]


def _cell(key: str, column: Column, row: Mapping[str, Any]) -> str:
    value = row[key]
    if value is None:
        return "–"
    if key == "completed":
        return f"{value}/{row['jobs']}"
    if column.heading.endswith("[h]"):
        return _hours(value)
    if key == "gpu_hours":
        return f"{value:,.0f}"
    if key == "gpu_utilization":
        return f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _hours(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 3600:.2f}"
