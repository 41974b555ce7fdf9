"""Tables of a report, as text: figures by policy, and by the size of the jobs."""

from __future__ import annotations

from dataclasses import dataclass

from foundation.figures import Unit, duration, hours, percent, shown, unit_for
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import idle_gpu_seconds
from policy_net.laboratory.report.headline import change
from policy_net.laboratory.report.owners import MOST_OWNERS, Owner, owners_by, together
from policy_net.laboratory.report.policies import label

WAITS_LONGER, LONGER_THAN_RECORDED = " ▲", " △"
"""Behind the wait of an owner whose jobs wait longer than under the policy compared with, and than was recorded."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: its name, and a text for every further column."""

    name: str
    cells: tuple[str, ...]
    proposed: bool = False


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; the first heading is that of the rows' names, and the legend explains its marks, a line each."""

    headings: tuple[str, ...]
    rows: tuple[TableRow, ...]
    legend: tuple[str, ...] = ()


def policy_table(comparison: Comparison) -> TextTable:
    """The command's figures by policy, in units for people."""
    unit = unit_for(*(comparison.avg_jct_seconds(result) for result in comparison.results))
    tail_unit = unit_for(*(figures["p99_jct_seconds"] for figures in comparison.figures))
    waits = [figures["avg_wait_seconds"] for figures in comparison.figures]
    recorded = comparison.recorded
    if recorded is not None:
        waits.append(recorded.avg_wait_seconds)
    wait_unit = unit_for(*(wait or 0.0 for wait in waits))
    today = comparison.avg_jct_seconds(comparison.today)
    headings = (
        "Policy",
        f"Average completion time [{unit.name}]",
        f"Against {label(comparison.today.policy)}",
        f"Average wait for the first start [{wait_unit.name}]",
        f"p99 of completion time [{tail_unit.name}]",
        "Average slowdown",
        "p99 of slowdown",
        "Starved jobs",
        "GPUs held",
        "Of these, training",
        "GPU-hours held",
        "GPU-hours idle while jobs wait",
        "Jobs done",
    )
    rows = []
    if recorded is not None:
        average, tail, wait = recorded.avg_jct_seconds, recorded.p99_jct_seconds, recorded.avg_wait_seconds
        known = (
            "–" if average is None else unit.number(average),
            "–" if average is None else change(average, today),
            "–" if wait is None else wait_unit.number(wait),
            "–" if tail is None else tail_unit.number(tail),
        )
        rows.append(TableRow("As recorded", (*known, *("–",) * (len(headings) - 1 - len(known)))))
    for result, figures in zip(comparison.results, comparison.figures, strict=True):
        average = figures["avg_jct_seconds"]
        allocated, training = figures["gpu_utilization"], figures["gpu_training_share"]
        idle = idle_gpu_seconds(comparison, result)
        cells = (
            unit.number(average),
            "–" if result is comparison.today else change(average, today),
            "–" if figures["avg_wait_seconds"] is None else _waited(wait_unit, figures["avg_wait_seconds"]),
            tail_unit.number(figures["p99_jct_seconds"]),
            _decimal(figures["avg_bounded_slowdown"]),
            _decimal(figures["p99_bounded_slowdown"]),
            f"{figures['starved_jobs']:,}",
            "–" if allocated is None else percent(allocated),
            "–" if not allocated or training is None else percent(training / allocated),
            hours(result.counters.gpu_seconds),
            "–" if idle is None else hours(idle),
            f"{done:,}" if (done := figures["completed"]) == figures["jobs"] else f"{done:,} of {figures['jobs']:,}",
        )
        rows.append(TableRow(label(result.policy), cells, result is comparison.proposed))
    return TextTable(headings, tuple(rows))


def size_table(comparison: Comparison) -> TextTable | None:
    """The proposed policy against today's, by requested size; None if there is nothing to compare."""
    if not comparison.compares:
        return None
    today, proposed = label(comparison.today.policy), label(comparison.proposed.policy)
    classes = comparison.size_classes if len(comparison.size_classes) > 1 else ()
    groups = (*classes, comparison.all_jobs)
    unit = unit_for(*(seconds for group in groups for seconds in (group.before_seconds, group.after_seconds)))
    rows = []
    for group in groups:
        worst = group.worst
        cells = (
            f"{len(group.pairs):,}",
            unit.number(group.before_seconds),
            unit.number(group.after_seconds),
            change(group.after_seconds, group.before_seconds),
            percent(group.earlier_share),
            percent(group.later_share),
            f"{duration(worst.delay_seconds)} ({shown(worst.job.job_id)})" if group.later_share else "none later",
        )
        rows.append(TableRow(group.name, cells))
    headings = (
        "Requested", "Jobs", f"{today}, average [{unit.name}]", f"{proposed}, average [{unit.name}]", "Change",
        "Done earlier", "Done later", "Worst delay (job)",
    )  # fmt: skip
    return TextTable(headings, tuple(rows))


def owner_table(comparison: Comparison, field: str) -> TextTable | None:
    """Users, accounts or partitions with the most GPU-hours, the others together; None where there are no two."""
    owners = owners_by(comparison, field)
    if not owners:
        return None
    today, proposed = label(comparison.today.policy), label(comparison.proposed.policy)
    named = [*owners[:MOST_OWNERS], *((others,) if (others := together(owners[MOST_OWNERS:])) is not None else ())]
    recorded = [owner.recorded_wait_seconds for owner in named if owner.recorded_wait_seconds is not None]
    simulated = [seconds for owner in named for seconds in (owner.wait_seconds_before, owner.wait_seconds_after)]
    wait = unit_for(*recorded, *simulated)
    end = unit_for(*(seconds for owner in named for seconds in (owner.jobs.before_seconds, owner.jobs.after_seconds)))
    headings = (
        field.capitalize(), "Jobs", "GPU-hours asked for", f"Recorded wait [{wait.name}]",
        f"Wait, {today} [{wait.name}]", f"Wait, {proposed} [{wait.name}]",
        f"Completion, {today} [{end.name}]", f"Completion, {proposed} [{end.name}]", "Change", "Done later",
    )  # fmt: skip
    rows = tuple(TableRow(shown(owner.name), _owner_cells(owner, wait, end)) for owner in named)
    marks = {
        WAITS_LONGER: f"waits longer for its first start, on average, than simulated under {today}",
        LONGER_THAN_RECORDED: "waits longer for its first start, on average, than was recorded",
    }
    marked = [text for row in rows for text in row.cells]
    legend = [f"{mark.strip()} {text}" for mark, text in marks.items() if any(mark in cell for cell in marked)]
    return TextTable(headings, rows, tuple(legend))


def _owner_cells(owner: Owner, wait: Unit, end: Unit) -> tuple[str, ...]:
    group = owner.jobs
    marks = (WAITS_LONGER if owner.waits_longer else "") + (
        LONGER_THAN_RECORDED if owner.waits_longer_than_recorded else ""
    )
    return (
        f"{len(group.pairs):,}",
        hours(owner.gpu_seconds),
        "–" if owner.recorded_wait_seconds is None else _waited(wait, owner.recorded_wait_seconds),
        _waited(wait, owner.wait_seconds_before),
        f"{_waited(wait, owner.wait_seconds_after)}{marks}",
        end.number(group.before_seconds),
        end.number(group.after_seconds),
        change(group.after_seconds, group.before_seconds),
        percent(group.later_share),
    )


def _waited(unit: Unit, seconds: float) -> str:
    """A wait in its column's unit; `<0.01` if it is too short for that."""
    return "<0.01" if 0.0 < seconds < 0.01 * unit.seconds else unit.number(seconds)


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
