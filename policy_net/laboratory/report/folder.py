"""Folder of a report: checked before the replays, written to at the end."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from foundation.files import is_folder
from policy_net.errors import BadInput
from policy_net.laboratory.report.comparison import Comparison

PAGE_NAME = "index.html"
PICTURE_NAME = "report.png"
MOST_WORKLOADS = 24
"""More would be no page that anybody reads, and a picture too large to open."""


def prepare_folder(folder: Path, workloads: int) -> None:
    """Make the folder.

    Raises:
        BadInput: it cannot be made or written to, or there are too many workloads for one report.
    """
    if workloads > MOST_WORKLOADS:
        raise BadInput(f"a report of {workloads} workloads is too long: give {MOST_WORKLOADS} at most")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unusable(folder, error) from error
    for name in (PAGE_NAME, PICTURE_NAME):
        if (folder / name).is_dir():
            raise BadInput(f"report {str(folder / name)!r} is a folder where a file is to be written: move it away")


def check_folder(folder: Path, workloads: int) -> None:
    """As `prepare_folder`, but leave no folder behind, in case the replay is stopped."""
    made = [each for each in (folder, *folder.parents) if not is_folder(each)]
    try:
        prepare_folder(folder, workloads)
    finally:
        with contextlib.suppress(OSError, ValueError):  # was never made, or somebody else has put something there
            for each in made:  # the innermost first
                each.rmdir()


def write_report(comparisons: Sequence[Comparison], folder: Path) -> tuple[Path, Path]:
    """Write the page and the picture, and make the folder for them; their paths.

    Raises:
        BadInput: a file cannot be written.
    """
    # Loads matplotlib and takes half a second: only who wants a report waits.
    from policy_net.laboratory.report.page import overview_png, page_html  # noqa: PLC0415

    page, picture = folder / PAGE_NAME, folder / PICTURE_NAME
    text, drawn = page_html(comparisons), overview_png(comparisons)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        picture.write_bytes(drawn)
    except OSError as error:
        raise _unusable(folder, error) from error
    return page, picture


def _unusable(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"report {str(folder)!r} cannot be written to ({error.strerror}): name a folder that can")
