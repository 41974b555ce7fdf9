"""`make reference`: write the reference pages of the user guide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deploy.reference.commands import commands_page
from deploy.reference.metrics import metrics_page
from deploy.reference.refusals import refusals_page
from deploy.reference.settings import settings_page

PAGES: dict[str, Callable[[], str]] = {
    "docs/guide/commands.md": commands_page,
    "docs/guide/metrics.md": metrics_page,
    "docs/guide/refusals.md": refusals_page,
    "docs/guide/settings.md": settings_page,
}


def main() -> None:
    """Write all pages, from the repository's root."""
    for name, page in PAGES.items():
        Path(name).write_text(page(), encoding="utf-8")
        print(f"written: {name}")


if __name__ == "__main__":
    main()
