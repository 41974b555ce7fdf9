"""Records of a JSON file that a user brings, with errors that name the record and the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import open_bytes, shown
from policy_net.laboratory.workloads.loaders.times import moment, stated_moment

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
        """See `times.moment`."""
        return moment(self.text_or_none(field), field, self)

    def stated_moment(self, field: str) -> float:
        """See `times.stated_moment`."""
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

    def _other(self, value: Any, field: str, wanted: str) -> MalformedRow:
        what = "is missing" if value is None else f"is {shown(value)}"
        return self.bad(field, what, f"it must be {wanted}")


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
