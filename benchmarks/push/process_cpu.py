"""Processor time that another process has used, all its threads together; Linux only."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME_FIELD = 11
"""Counted behind the name in brackets, which may hold spaces; the system's share stands after it."""


def cpu_seconds(pid: int) -> float:
    """User and system time in seconds, to a hundredth.

    Raises:
        OSError: there is no such process.
    """
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(behind_name[_UTIME_FIELD]) + int(behind_name[_UTIME_FIELD + 1])) / _TICKS_PER_SECOND
