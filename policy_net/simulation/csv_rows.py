"""Rows of a csv file that a user brings, with errors that name the file, the line and the value."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policy_net.errors import BadInput


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it stands, for messages."""

    path: Path
    line: int
    cells: Mapping[str, str | None]

    def text(self, column: str) -> str:
        """The cell without surrounding blanks. Raises BadInput if it is empty or missing."""
        value = (self.cells.get(column) or "").strip()
        if not value:
            raise self.bad(column, "is empty", "give every row all its columns")
        return value

    def number(self, column: str) -> float:
        """The cell as a finite number. Raises BadInput if it is none."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.bad(column, f"is {text!r}", "use a finite number")
        return value

    def number_from_zero(self, column: str) -> float:
        """The cell as a finite number ≥ 0. Raises BadInput if it is none."""
        value = self.number(column)
        if value < 0:
            raise self.bad(column, f"is {self.text(column)!r}", "use a number ≥ 0")
        return value

    def whole(self, column: str, at_least: int) -> int:
        """The cell as a whole number (8 or 8.0). Raises BadInput if it is none or too small."""
        value = self.number(column)
        if not value.is_integer() or value < at_least:
            raise self.bad(column, f"is {self.text(column)!r}", f"use a whole number ≥ {at_least}")
        return int(value)

    def bad(self, column: str, what: str, remedy: str) -> BadInput:
        """The error that says what is wrong with a cell of this row."""
        return BadInput(f"{self.path}, line {self.line}: {column} {what}; {remedy}")


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a UTF-8 csv file with a header that has at least `columns`.

    Raises:
        BadInput: the file cannot be read or decoded, lacks a column, or has no rows.
    """
    found = False
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames
            if not header:
                raise BadInput(f"{path}: the file is empty; it needs a header with {', '.join(columns)}")
            missing = [name for name in columns if name not in header]
            if missing:
                raise BadInput(
                    f"{path}: column {missing[0]!r} is missing from the header {','.join(header)!r};"
                    f" it needs at least {', '.join(columns)}"
                )
            for cells in reader:
                found = True
                # A decimal comma would shift the cells behind it, and be read as another job.
                surplus = [cell for cell in cells.get(None, ()) if cell.strip()]
                if surplus:
                    raise BadInput(
                        f"{path}, line {reader.line_num}: {surplus[0]!r} stands beyond the header's {len(header)}"
                        " columns; write decimals with a point, and quote cells that hold a comma"
                    )
                yield Row(path, reader.line_num, cells)
    except OSError as error:
        raise BadInput(f"{path}: cannot read the file: {error.strerror}; give the path of a csv file") from error
    except UnicodeDecodeError as error:
        line, value = _first_undecodable(path)
        raise BadInput(f"{path}, line {line}: {value!r} is not UTF-8 text; save the file as UTF-8 csv") from error
    except csv.Error as error:
        raise BadInput(f"{path}: not a csv file: {error}") from error
    if not found:
        raise BadInput(f"{path}: the file has a header but no rows")


def _first_undecodable(path: Path) -> tuple[int, bytes]:
    """The first line that is not UTF-8, and its bytes from there on (a few); the decoder itself counts by blocks."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number, line[error.start : error.start + 8]
    raise AssertionError(f"{path} is UTF-8, line by line")  # no line end is part of a longer UTF-8 sequence
