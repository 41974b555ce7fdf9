"""Where a report is written: checked before the first minute is spent on replays."""

from __future__ import annotations

import tempfile
from pathlib import Path

from policy_net.errors import BadInput

PAGE_NAME = "index.html"
PICTURE_NAME = "report.png"
MOST_WORKLOADS = 24
"""More would be no page that anybody reads, and no picture that programs open."""


def prepare_folder(folder: Path, workloads: int) -> None:
    """Make the folder and see that files can be written to it.

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
        raise unusable(folder, error) from error
    for name in (PAGE_NAME, PICTURE_NAME):
        if (folder / name).is_dir():
            raise BadInput(f"report {str(folder / name)!r} is a folder where a file is to be written: move it away")


def unusable(folder: Path, error: OSError) -> BadInput:
    """The one line for a folder that cannot be written to."""
    return BadInput(f"report {str(folder)!r} cannot be written to ({error.strerror}): name a folder that can")
