"""Moments and lengths of time as schedulers write them.

A moment without a time zone is read as if it were UTC: only differences matter here, and those are right but for the
hour by which clocks are changed.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Protocol

from policy_net.errors import MalformedRow
from policy_net.laboratory.csv_rows import LONGEST_RUN_SECONDS, LONGEST_SECONDS, plain_number, shown

ZONE_NOTE = "times without a zone are read as they stand: where clocks were changed, arrivals are off by that hour"

_UNSTATED = frozenset({"", "none", "null", "nan", "unknown", "n/a", "invalid"})

_ELAPSED = re.compile(
    r"(?:(?P<days>\d{1,7})-)?(?:(?P<hours>\d{1,9}):)?(?P<minutes>\d{1,9}):(?P<seconds>\d{1,9}(?:\.\d*)?)"
)


class ValuePlace(Protocol):
    """Place of a value, for messages: a row of a table, a record of a list."""

    def bad(self, column: str, what: str, remedy: str) -> MalformedRow:
        """The error that says what is wrong with one value."""
        ...


_ZERO_DATE = "0001-01-01T00:00:00"
"""What programs in Go write for no time."""


def unstated(text: str | None) -> bool:
    """Whether a value says that there is none."""
    return text is None or text.strip().lower() in _UNSTATED or text.strip().startswith(_ZERO_DATE)


def moment(text: str | None, column: str, place: ValuePlace) -> float | None:
    """Seconds since 1970 from a date and time, or from such a number; None if unstated.

    Raises:
        MalformedRow: the text is neither.
    """
    if text is None or unstated(text):
        return None
    seconds = _seconds_since_1970(text)
    if math.isnan(seconds):
        raise place.bad(
            column, f"is {shown(text)}", "write a time as YYYY-MM-DD HH:MM:SS or in seconds, within a calendar's range"
        )
    return seconds


def moment_if_any(text: str | None) -> float | None:
    """As `moment`, for a time that no job's size or duration depends on: None too where the text is no time."""
    seconds = math.nan if text is None or unstated(text) else _seconds_since_1970(text)
    return None if math.isnan(seconds) else seconds


def _seconds_since_1970(text: str) -> float:
    """NaN where the text is no time."""
    seconds = plain_number(text)
    if math.isnan(seconds):
        try:
            when = datetime.fromisoformat(text.strip())
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return math.nan
    return seconds if abs(seconds) <= LONGEST_SECONDS else math.nan  # infinite too


def stated_moment(text: str | None, column: str, place: ValuePlace) -> float:
    """As `moment`, but the time must be stated. Raises MalformedRow if it is not."""
    seconds = moment(text, column, place)
    if seconds is None:
        raise place.bad(column, f"is {shown(text or '')}", "state the time")
    return seconds


def span(start: float, end: float, columns: tuple[str, str], place: ValuePlace) -> float:
    """Seconds from `start` to `end`. Raises MalformedRow if the end stands first, or years later."""
    if end < start:
        raise place.bad(
            columns[1], f"lies {start - end:g} s before {columns[0]}", "mend the times, which change places"
        )
    if end - start > LONGEST_RUN_SECONDS:
        raise place.bad(columns[1], f"lies {end - start:g} s after {columns[0]}", "mend the times: no job runs so long")
    return end - start


def elapsed(text: str, column: str, place: ValuePlace) -> float:
    """Seconds of a length written as [DD-[HH:]]MM:SS[.fraction].

    Raises:
        MalformedRow: it is written otherwise.
    """
    match = _ELAPSED.fullmatch(text.strip()) if text.isascii() else None
    if match is None:
        raise place.bad(column, f"is {shown(text)}", "write a length as [DD-[HH:]]MM:SS")
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    seconds = days * 86400.0 + hours * 3600 + minutes * 60 + float(match["seconds"])
    if seconds > LONGEST_RUN_SECONDS:
        raise place.bad(column, f"is {shown(text)}", "use a length of ten years at most")
    return seconds
