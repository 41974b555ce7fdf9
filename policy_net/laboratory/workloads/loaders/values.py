"""Values of records as users bring them: moments and lengths of time, and objects within JSON.

A moment without a time zone is read as if it were UTC: only differences matter here, and those are right but for the
hour by which clocks are changed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import LONGEST_RUN_SECONDS, LONGEST_SECONDS, open_bytes, plain_number, shown

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


_LONGEST_LINE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a file, and where it stands, for messages.

    Attributes:
        number: position of the record that it is, or is a part of, from 1; `name` where the record has one.
        place: which field of the record it is; empty of the record itself.
    """

    path: Path
    number: int
    unit: str
    fields: Mapping[str, Any]
    name: str = ""
    place: str = ""

    def part(self, field: str, *, needed: bool = True) -> Item:
        """A nested object; an empty one for one that is not `needed`. Raises MalformedRow if it is no object."""
        value = self.fields.get(field)
        return self._within(value if needed else value or {}, field)

    def parts(self, field: str, *, needed: bool = True) -> list[Item]:
        """The objects of a nested list, likewise."""
        return [self._within(value, f"{field}[{at}]") for at, value in enumerate(self.a_list(field, needed=needed))]

    def a_list(self, field: str, *, needed: bool = True) -> list[Any]:
        """A nested list; an empty one for one that is not `needed`. Raises MalformedRow if it is no list."""
        value = self.fields.get(field)
        value = value if needed else value or []
        if not isinstance(value, list):
            raise self._other(value, field, "a list")
        return value

    def text(self, field: str) -> str:
        """A text that is not empty. Raises MalformedRow if there is none."""
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise self._other(value, field, "a text")
        if not value.strip():
            raise self.bad(field, "is empty", "give every record its own")
        return value.strip()

    def text_or_none(self, field: str) -> str | None:
        """A text, which may be missing. Raises MalformedRow if the value is something else."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, str):
            raise self._other(value, field, "a text")
        return value

    def word(self, field: str) -> str:
        """A text that nothing but words depends on: empty where it is missing or something else."""
        value = self.fields.get(field)
        return value.strip() if isinstance(value, str) else ""

    def moment(self, field: str) -> float | None:
        """See the function of this name."""
        return moment(self.text_or_none(field), field, self)

    def stated_moment(self, field: str) -> float:
        """See the function of this name."""
        return stated_moment(self.text_or_none(field), field, self)

    def bad(self, column: str, what: str, remedy: str) -> MalformedRow:
        """The error that says what is wrong with a field."""
        name = f" ({shown(self.name)})" if self.name else ""
        column = self._full(column)
        return MalformedRow(
            f"{self.path}, {self.unit} {self.number}{name}: {column} {what}; {remedy}", f"{column}: {remedy}"
        )

    def _within(self, value: Any, field: str) -> Item:
        if not isinstance(value, dict):
            raise self._other(value, field, "an object")
        return replace(self, fields=value, place=self._full(field))

    def _full(self, field: str) -> str:
        return f"{self.place}.{field}" if self.place else field

    def _other(self, value: Any, field: str, expected: str) -> MalformedRow:
        what = "is missing" if value is None else f"is {shown(value)}"
        return self.bad(field, what, f"it must be {expected}")


def item(path: Path, number: int, unit: str, value: Any) -> Item:
    """A record of a list. Raises MalformedRow if it is no object."""
    if not isinstance(value, dict):
        remedy = "every record must be an object"
        raise MalformedRow(f"{path}, {unit} {number}: is {shown(value)}; {remedy}", remedy)
    return Item(path, number, unit, value)


def is_json(path: Path) -> bool:
    """Whether a file's first line begins as an object or a list does. A pipe is not looked at: it is read once."""
    if not path.is_file():
        return False
    with open_bytes(path) as file:
        return file.readline(_LONGEST_LINE_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def read_json(path: Path, expected: str) -> Any:
    """The content of a JSON file, plain or gzip'ed, in any Unicode encoding that JSON allows.

    Raises:
        BadInput: the file cannot be read, or is cut short or damaged; `expected` says what it should hold.
    """
    try:
        with open_bytes(path) as file:
            return json.load(file, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON, or cut short: {error.msg}; {expected}"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}, byte {error.start}: not Unicode text; {expected}") from error
    except RecursionError as error:
        raise BadInput(f"{path}: nested too deeply to be a list of jobs; {expected}") from error
    except ValueError as error:  # a number of thousands of digits, NaN
        raise BadInput(f"{path}: {error}; {expected}") from error


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
