"""Page of a report: a short table between two marks, text by hand around it, and csv files with all figures beside."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from benchmarks.policy_quality.tables import best_in_hindsight_table, made_up_rows, recorded_rows
from foundation.files import write_whole
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
