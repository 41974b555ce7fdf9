"""Moments as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from global_learner.errors import BadConfig

_AGO = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def moment_of(text: str, now_unix_seconds: float) -> float:
    """Unix seconds of `90s`, `30m`, `12h` or `7d` before now, or of a date or moment in UTC.

    Raises:
        BadConfig: it is none of these.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_unix_seconds - int(ago[1]) * _SECONDS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadConfig(f"{text!r} is no moment: use 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC)") from error
