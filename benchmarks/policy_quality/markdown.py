"""Tables of a report in a page, between two marks, so that the text around them may be written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.policy_quality.tables import report_tables
from policy_net.errors import BadInput

BEGIN = "<!-- tables: made by python -m benchmarks.policy_quality --markdown -->"
END = "<!-- end of tables -->"


def check_page(path: Path) -> None:
    """Whether tables can be put into the page, before hours are spent on them.

    Raises:
        BadInput: it cannot be read, is in no folder, or lacks the marks.
    """
    if path.exists():
        _around(path)
    elif not path.parent.is_dir():
        raise BadInput(f"{path}: its folder does not exist; make it first")


def write_page(path: Path, report: dict[str, Any]) -> None:
    """Replace what stands between the marks; make a new page if there is none.

    Raises:
        BadInput: the page that is there lacks the marks.
    """
    before, after = _around(path) if path.exists() else ("# Policies compared\n\n", "\n")
    tables = "\n\n".join(table.for_markdown() for table in report_tables(report))
    path.write_text(f"{before}{BEGIN}\n\n{_made_by(report)}\n\n{tables}\n\n{END}{after}", encoding="utf-8")


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
