"""Writes the report's files. Loads matplotlib, so import it only where a report is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.folder import PAGE_NAME, PICTURE_NAME, unusable
from policy_net.laboratory.report.page import page_html
from policy_net.laboratory.report.pictures import overview_png


def write_report(comparisons: Sequence[Comparison], folder: Path) -> tuple[Path, Path]:
    """Write the page and the picture; returns their paths.

    Raises:
        BadInput: a file cannot be written.
    """
    page, picture = folder / PAGE_NAME, folder / PICTURE_NAME
    try:
        page.write_text(page_html(comparisons), encoding="utf-8")
        picture.write_bytes(overview_png(comparisons))
    except OSError as error:
        raise unusable(folder, error) from error
    return page, picture
