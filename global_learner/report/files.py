"""The report as a folder to open or pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from global_learner.errors import BadConfig
from global_learner.report.page import static_page

PAGE_NAME = "index.html"


def write_page(content: dict[str, Any], folder: Path) -> Path:
    """Write the page, whole or not at all; returns its path.

    Raises:
        BadConfig: it cannot be written there.
    """
    page = folder / PAGE_NAME
    partial = page.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(static_page(content), encoding="utf-8")
        partial.replace(page)
    except OSError as error:
        raise BadConfig(f"{page}: cannot be written ({error.strerror}); name another folder with --out") from error
    return page
