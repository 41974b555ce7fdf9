"""Disk use of the state directory by part, and the signs of a full disk.

A full disk is waited for, unlike a broken one: what it lacks comes back. A limit on the size of files or a quota counts
as full too: it refuses in the same way, and is lifted in the same way.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from foundation.errors import DISK_FULL
from global_learner.postgres.server import is_full as is_server_full
from global_learner.telemetry import LearnerTelemetry

PARTS = ("log", "snapshots", "receipts", "policies", "heads", "identity", "signing")
"""Folders of the state directory that are told apart; everything else is `other`."""
OTHER = "other"
RETRY_SECONDS = 1.0
"""How often a full disk is tried again: soon enough for people, too seldom to be a load."""


def is_disk_full(error: BaseException) -> bool:
    """Whether this error says that there is no room, and nothing worse."""
    if isinstance(error, OSError):
        return error.errno in DISK_FULL
    if isinstance(error, DBAPIError):
        if is_server_full(error):
            return True
        return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return False


def disk_use(state_dir: Path) -> dict[str, int]:
    """Bytes on disk by part; files that are removed meanwhile do not count."""
    used = dict.fromkeys((*PARTS, OTHER), 0)
    for folder, _, names in os.walk(state_dir):
        part = Path(folder).relative_to(state_dir).parts[:1]
        name = part[0] if part and part[0] in used else OTHER
        for file in names:
            try:
                used[name] += 512 * (Path(folder) / file).stat().st_blocks
            except FileNotFoundError:
                continue
    return used


def report_disk(telemetry: LearnerTelemetry, state_dir: Path, log_limit_bytes: int, full: Callable[[], bool]) -> None:
    """Let the metrics say what is taken whenever they are asked."""

    def part_bytes(part: str) -> float:
        return float(disk_use(state_dir)[part])

    for part in (*PARTS, OTHER):
        telemetry.disk.labels(part).set_function(partial(part_bytes, part))
    telemetry.log_limit.set(log_limit_bytes)
    telemetry.disk_full.set_function(lambda: float(full()))
