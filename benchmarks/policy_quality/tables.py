"""Tables of a report: all of them for a terminal, one for a page of documentation, and rows of csv files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.policy_quality.policies import HEURISTICS, TRUTH_KNOWING
from foundation.files import write_whole
from foundation.tables import Column, FittedTable
from policy_net.errors import BadInput

BEGIN = "<!-- tables: made by python -m benchmarks.policy_quality --markdown -->"
END = "<!-- end of tables -->"


def check_page(path: Path) -> None:
    """Whether tables can be put into the page, before hours are spent on them.

    Raises:
        BadInput: it cannot be read, is in no folder, or lacks the marks; a file is where its csv files go.
    """
    if path.exists():
        _around(path)
    elif not path.parent.is_dir():
        raise BadInput(f"{path}: its folder does not exist; make it first")
    if _csv_folder(path).exists() and not _csv_folder(path).is_dir():
        raise BadInput(f"{_csv_folder(path)}: is no folder, and csv files go there; name another page")


def write_page(path: Path, report: dict[str, Any]) -> None:
    """Replace what stands between the marks, and the csv files; make a new page if there is none.

    Raises:
        BadInput: the page that is there lacks the marks.
    """
    before, after = _around(path) if path.exists() else ("# Policies compared\n\n", "\n")
    parts = [_made_by(report)]
    for name, rows in (("recorded.csv", recorded_rows(report)), ("made_up.csv", made_up_rows(report))):
        if rows:
            _csv_folder(path).mkdir(exist_ok=True)
            write_whole(_csv_folder(path) / name, _csv(rows), durable=False)
            parts.append(f"All figures: [{name}]({_csv_folder(path).name}/{name}).")
    if report["real"]:
        parts.append(best_in_hindsight_table(report).for_markdown())
    text = "\n\n".join(parts)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _csv_folder(page: Path) -> Path:
    return page.with_name(page.stem if page.suffix else f"{page.name}-csv")


def _csv(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _around(path: Path) -> tuple[str, str]:
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as a page of text: {error}; name another file") from error
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise BadInput(
            f"{path}: has no lines {BEGIN} and {END} to put the tables between; add them, or name a new file"
        )
    return before, after


def _made_by(report: dict[str, Any]) -> str:
    lines = [f"Grid {report['description']}. {report['cells']} replays, {report['cpu_seconds'] / 60:.0f} CPU minutes."]
    if report["failures"]:
        lines.append(f"**{len(report['failures'])} replays failed and are missing:**")
        lines += [f"- {failure['policy']} on {failure['cell']}: {failure['reason']}" for failure in report["failures"]]
    return "\n".join(lines)


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


def best_in_hindsight_table(report: Json) -> TextTable:
    """Mean completion time over the best heuristic of each cluster, of all other policies, on windows that judge."""
    beside = {*HEURISTICS, *TRUTH_KNOWING}
    by_section = [{row["policy"]: row for row in section["policies"]} for section in report["real"]]
    names = [name for name in report["policies"] if name not in beside and any(name in rows for rows in by_section)]
    rows = [
        (
            _conditions(section),
            *(
                _with_interval(rows_of[name]["over_best_heuristic_in_hindsight"]) if name in rows_of else MISSING
                for name in names
            ),
        )
        for section, rows_of in zip(report["real"], by_section, strict=True)
    ]
    return TextTable("Over the best heuristic of each cluster in hindsight", ("recorded workloads", *names), rows)


def recorded_rows(report: Json) -> list[dict[str, str]]:
    """A csv row for each policy under each set of conditions; ratios are of average completion times."""
    sections = [("test", section) for section in report["real"]]
    sections += [("all", section) for section in report["real_all_windows"]]
    return [
        {
            "windows": windows,
            "job_kind": section["job_kind"],
            "load": f"{section['load']:g}",
            "durations": section["durations"],
            "capacity": section["capacity"],
            "locality": "yes" if section["locality"] else "no",
            "clusters": str(section["clusters"]),
            "jobs": str(section["jobs"]),
            "policy": row["policy"],
            "over_fifo_median": _figure(row["over_fifo"], "median", ""),
            **_csv_interval("over_fifo", row["over_fifo"]),
            "without_longest_1_percent_over_fifo_median": _figure(
                row["over_fifo_without_longest_1_percent"], "median", ""
            ),
            "p99_jct_over_fifo_median": _figure(row["p99_jct_over_fifo"], "median", ""),
            "longest_jct_over_fifo_median": _figure(row["max_jct_over_fifo"], "median", ""),
            "bounded_slowdown_mean": _number(row["avg_bounded_slowdown"], ""),
            "bounded_slowdown_p99": _number(row["p99_bounded_slowdown"], ""),
            "starved_share": "" if row["starved_share"] is None else f"{row['starved_share']:.3f}",
            **_csv_interval("over_best_published", row["over_best_published_in_hindsight"]),
            "clusters_5_percent_below_best_published": _wins(row["over_best_published_in_hindsight"], "{wins}", ""),
            **_csv_interval("over_best_heuristic", row["over_best_heuristic_in_hindsight"]),
            "clusters_5_percent_below_best_heuristic": _wins(row["over_best_heuristic_in_hindsight"], "{wins}", ""),
        }
        for windows, section in sections
        for row in section["policies"]
    ]


def made_up_rows(report: Json) -> list[dict[str, str]]:
    """A csv row for each policy on each kind of made-up workload."""
    return [
        {
            "sizes": section["sizes"],
            "capacity": section["capacity"],
            "disturbance": section["disturbance"],
            "nodes": str(section["nodes"]),
            "jobs": str(section["jobs"]),
            "policy": row["policy"],
            "avg_jct_slots": f"{row['avg_jct_slots']:.2f}",
        }
        for section in report["synthetic"]
        for row in section["policies"]
    ]


def _conditions(section: Json) -> str:
    kind = {"allreduce": "all-reduce", "mix": "half all-reduce, half PS", "ps": "PS"}[section["job_kind"]]
    return (
        f"{kind}, load {section['load']:g}, durations {section['durations']},"
        f" capacity {section['capacity']}{', locality' if section['locality'] else ''}"
    )


def _csv_interval(name: str, comparison: Json | None) -> dict[str, str]:
    low, high = ("", "")
    if comparison is not None and comparison["interval"] is not None:
        low, high = (f"{bound:.3f}" for bound in comparison["interval"])
    return {f"{name}_mean": _figure(comparison, "mean", ""), f"{name}_low": low, f"{name}_high": high}


def _real_table(section: Json, suffix: str) -> TextTable:
    title = (
        f"Recorded workloads, {_conditions(section)}{suffix}: {section['clusters']} clusters, {section['jobs']} jobs"
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


def _figure(comparison: Json | None, name: str, missing: str = MISSING) -> str:
    return missing if comparison is None else f"{comparison[name]:.3f}"


def _with_interval(comparison: Json | None) -> str:
    if comparison is None or comparison["interval"] is None:
        return _figure(comparison, "mean")
    low, high = comparison["interval"]
    return f"{comparison['mean']:.3f} ({low:.3f}–{high:.3f})"


def _wins(comparison: Json | None, form: str = "{wins} of {units}", missing: str = MISSING) -> str:
    return missing if comparison is None else form.format_map(comparison)


def _number(value: float | None, missing: str = MISSING) -> str:
    if value is None:
        return missing
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
