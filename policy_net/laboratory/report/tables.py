"""Tables of a report, as text: figures by policy, and by the size of the jobs."""

from __future__ import annotations

from dataclasses import dataclass

from foundation.figures import duration, hours, percent, shown, unit_for
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import change, idle_gpu_seconds
from policy_net.laboratory.report.policies import label


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, and a text for every further column."""

    name: str
    cells: tuple[str, ...]
    proposed: bool = False


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; the first heading is that of the rows' names."""

    headings: tuple[str, ...]
    rows: tuple[Row, ...]


def policy_table(comparison: Comparison) -> TextTable:
    """A row per policy: the command's own figures, in units for people."""
    unit = unit_for(*(comparison.avg_jct_seconds(result) for result in comparison.results))
    tail_unit = unit_for(*(figures["p99_jct_seconds"] for figures in comparison.figures))
    today = comparison.avg_jct_seconds(comparison.today)
    headings = (
        "Policy",
        f"Average completion time [{unit.name}]",
        f"against {label(comparison.today.policy)}",
        f"p99 of it [{tail_unit.name}]",
        "Average slowdown",
        "p99 of it",
        "Starved jobs",
        "GPUs held",
        "of which training",
        "GPU-hours held",
        "GPU-hours idle while jobs wait",
        "Jobs done",
    )
    rows = []
    for result, figures in zip(comparison.results, comparison.figures, strict=True):
        average = figures["avg_jct_seconds"]
        held, training = figures["gpu_utilization"], figures["gpu_training_share"]
        idle = idle_gpu_seconds(comparison, result)
        cells = (
            unit.number(average),
            "–" if result is comparison.today else change(average, today),
            tail_unit.number(figures["p99_jct_seconds"]),
            _decimal(figures["avg_bounded_slowdown"]),
            _decimal(figures["p99_bounded_slowdown"]),
            f"{figures['starved_jobs']:,}",
            "–" if held is None else percent(held),
            "–" if not held or training is None else percent(training / held),
            hours(result.counters.gpu_seconds),
            "–" if idle is None else hours(idle),
            _done(figures["completed"], figures["jobs"]),
        )
        rows.append(Row(label(result.policy), cells, result is comparison.proposed))
    return TextTable(headings, tuple(rows))


def size_table(comparison: Comparison) -> TextTable | None:
    """Today against the proposed policy by requested size; None if there is nothing to compare."""
    if not comparison.compares:
        return None
    today, proposed = label(comparison.today.policy), label(comparison.proposed.policy)
    classes = comparison.size_classes if len(comparison.size_classes) > 1 else ()
    rows = []
    for group in (*classes, comparison.all_jobs):
        unit = unit_for(group.before_seconds, group.after_seconds)
        worst = group.worst
        cells = (
            f"{len(group.pairs):,}",
            unit.text(group.before_seconds),
            unit.text(group.after_seconds),
            change(group.after_seconds, group.before_seconds),
            percent(group.earlier_share),
            percent(group.later_share),
            f"{duration(worst.delay_seconds)} ({shown(worst.job.job_id)})" if group.later_share else "none later",
        )
        rows.append(Row(group.name, cells))
    headings = (
        "Requested", "Jobs", f"{today}, average", f"{proposed}, average", "Change", "Done earlier", "Done later",
        "Worst delay (job)",
    )  # fmt: skip
    return TextTable(headings, tuple(rows))


def _done(completed: int, jobs: int) -> str:
    return f"{completed:,}" if completed == jobs else f"{completed:,} of {jobs:,}"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
