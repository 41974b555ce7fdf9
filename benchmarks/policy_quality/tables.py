"""The report's tables, for a terminal and for a page of documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foundation.tables import Column, FittedTable

Json = dict[str, Any]

MISSING = "–"


@dataclass(frozen=True)
class TextTable:
    """A table of text: the first column names, the others hold figures."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def for_terminal(self) -> FittedTable:
        """With as many of the columns, from the left, as there is room for."""
        columns = [Column(heading.replace(" / ", " /\n"), place) for place, heading in enumerate(self.headings)]
        return FittedTable(self.title, columns, self.rows)

    def for_markdown(self) -> str:
        """As a heading and a table in GitHub's markdown."""
        rule = ("---", *("---:" for _ in self.headings[1:]))
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.headings, rule, *self.rows)]
        return "\n".join([f"### {self.title}", "", *lines])


REAL_HEADINGS = (
    "policy",
    "JCT / fifo, median",
    "geometric mean (95%)",
    "without longest 1%",
    "p99 JCT / fifo",
    "longest JCT / fifo",
    "slowdown",
    "p99 slowdown",
    "starved",
    "over best published (95%)",
    "≥ 5% better",
    "over best heuristic (95%)",
    "≥ 5% better",
)


def report_tables(report: Json) -> list[TextTable]:
    """All tables of a report: recorded workloads first, then made-up ones, then the disturbed."""
    tables = [_real_table(section, "") for section in report["real"]]
    tables += [_real_table(section, ", all windows") for section in report["real_all_windows"]]
    plain = [section for section in report["synthetic"] if section["disturbance"] == "none"]
    for sizes, capacity in dict.fromkeys((section["sizes"], section["capacity"]) for section in plain):
        chosen = [s for s in plain if (s["sizes"], s["capacity"]) == (sizes, capacity)]
        title = f"Made-up workloads, sizes {sizes}, capacity {capacity}: mean JCT in slots"
        headings = [f"{s['nodes']} nodes, {s['jobs']} jobs" for s in chosen]
        tables.append(_synthetic_table(title, chosen, headings, report["policies"]))
    disturbed = [section for section in report["synthetic"] if section["disturbance"] != "none"]
    for nodes in dict.fromkeys(section["nodes"] for section in disturbed):
        chosen = [s for s in disturbed if s["nodes"] == nodes]
        alike = ("nodes", "jobs", "sizes", "capacity")
        chosen = [s for s in plain if all(s[name] == chosen[0][name] for name in alike)] + chosen
        title = f"Disturbed, {nodes} nodes, sizes {chosen[0]['sizes']}, capacity {chosen[0]['capacity']}"
        tables.append(
            _synthetic_table(
                f"{title}: mean JCT in slots", chosen, [s["disturbance"] for s in chosen], report["policies"]
            )
        )
    return tables


def _real_table(section: Json, suffix: str) -> TextTable:
    kind = {"allreduce": "all-reduce", "mix": "half all-reduce, half PS", "ps": "PS"}[section["job_kind"]]
    title = (
        f"Recorded workloads, {kind}, load {section['load']:g}, durations {section['durations']},"
        f" capacity {section['capacity']}{', locality' if section['locality'] else ''}{suffix}:"
        f" {section['clusters']} clusters, {section['jobs']} jobs"
    )
    return TextTable(title, REAL_HEADINGS, [_real_row(row) for row in section["policies"]])


def _real_row(row: Json) -> tuple[str, ...]:
    return (
        row["policy"],
        _figure(row["over_fifo"], "median"),
        _with_interval(row["over_fifo"]),
        _figure(row["over_fifo_without_longest_1_percent"], "median"),
        _figure(row["p99_jct_over_fifo"], "median"),
        _figure(row["max_jct_over_fifo"], "median"),
        _number(row["avg_bounded_slowdown"]),
        _number(row["p99_bounded_slowdown"]),
        MISSING if row["starved_share"] is None else f"{row['starved_share']:.1%}",
        _with_interval(row["over_best_published_in_hindsight"]),
        _wins(row["over_best_published_in_hindsight"]),
        _with_interval(row["over_best_heuristic_in_hindsight"]),
        _wins(row["over_best_heuristic_in_hindsight"]),
    )


def _synthetic_table(
    title: str, sections: Sequence[Json], headings: Sequence[str], policies: Sequence[str]
) -> TextTable:
    by_name = [{row["policy"]: row for row in section["policies"]} for section in sections]
    rows = []
    for name in policies:
        cells = [rows_of.get(name) for rows_of in by_name]
        rows.append((name, *(MISSING if row is None else f"{row['avg_jct_slots']:.2f}" for row in cells)))
    return TextTable(title, ("policy", *headings), rows)


def _figure(comparison: Json | None, name: str) -> str:
    return MISSING if comparison is None else f"{comparison[name]:.3f}"


def _with_interval(comparison: Json | None) -> str:
    if comparison is None or comparison["interval"] is None:
        return _figure(comparison, "mean")
    low, high = comparison["interval"]
    return f"{comparison['mean']:.3f} ({low:.3f}–{high:.3f})"


def _wins(comparison: Json | None) -> str:
    return MISSING if comparison is None else f"{comparison['wins']} of {comparison['units']}"


def _number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
