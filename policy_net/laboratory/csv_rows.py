"""Rows of a csv file that a user brings, with errors that name the file, the line and the value.

One line is one row: a quote that is never closed spoils its own line and not the rest of the file. Files may be
gzip'ed, and are opened once, so that a pipe does as well.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

from policy_net.errors import BadInput, MalformedRow, OtherColumns

LONGEST_SECONDS = 1e11
"""About 3,000 years, Unix times in seconds far within it: anything beyond is a slip of units or of the pen."""

LONGEST_RUN_SECONDS = 10 * 365.25 * 86400.0
"""No job runs for ten years: a longer one is a slip of units, and would take as long to simulate."""

MOST_GPUS = 1_000_000
"""More than any cluster has."""

_SHOWN_CHARACTERS = 60
_GZIP_MAGIC = b"\x1f\x8b"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_PACKED = {
    b"PK\x03\x04": "a zip archive, or a spreadsheet (.xlsx): unpack it (unzip), or save it as csv",
    b"\xfd7zXZ\x00": "packed by xz: unpack it (xz -d)",
    b"BZh": "packed by bzip2: unpack it (bzip2 -d)",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it (zstd -d)",
    b"\x04\x22\x4d\x18": "packed by lz4: unpack it (lz4 -d)",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it (7z x)",
    b"Rar!": "a rar archive: unpack it (unrar x)",
    b"PAR1": "a Parquet file: save it as csv",
    b"SQLite format 3\x00": "an SQLite database: save its table as csv",
}
"""By their first bytes: files as they are downloaded that are not read."""
_OTHER_DELIMITERS = (";", "\t")
"""Of a table whose columns are not divided by commas: spreadsheets write what the country has."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row, and where it stands, for messages."""

    path: Path
    line: int
    cells: Mapping[str, str]
    unit: str = "line"

    def optional(self, column: str) -> str | None:
        """The cell without surrounding blanks; None if it is empty or there is no such column."""
        return self.cells.get(column, "").strip() or None

    def text(self, column: str) -> str:
        """The cell without surrounding blanks. Raises MalformedRow if it is empty or missing."""
        value = self.optional(column)
        if value is None:
            raise self.bad(column, "is empty", "give every row all its columns")
        return value

    def number(self, column: str) -> float:
        """The cell as a finite number. Raises MalformedRow if it is none."""
        text = self.text(column)
        value = plain_number(text)
        if not math.isfinite(value):
            raise self.bad(column, f"is {shown(text)}", "use a finite number")
        return value

    def number_from_zero(self, column: str) -> float:
        """The cell as a finite number ≥ 0. Raises MalformedRow if it is none."""
        value = self.number(column)
        if value < 0:
            raise self.bad(column, f"is {shown(self.text(column))}", "use a number ≥ 0")
        return value

    def seconds(self, column: str) -> float:
        """The cell as seconds on some clock. Raises MalformedRow if it is no number, or beyond any calendar."""
        value = self.number(column)
        if abs(value) > LONGEST_SECONDS:
            raise self.bad(column, f"is {shown(self.text(column))}", f"use seconds, within ±{LONGEST_SECONDS:g}")
        return value

    def seconds_from_zero(self, column: str) -> float:
        """The cell as a length of time. Raises MalformedRow if it is none, negative, or longer than any job lasts."""
        value = self.number_from_zero(column)
        if value > LONGEST_RUN_SECONDS:
            raise self.bad(column, f"is {shown(self.text(column))}", "use seconds, of ten years at most")
        return value

    def whole(self, column: str, at_least: int) -> int:
        """The cell as a whole number (8 or 8.0). Raises MalformedRow if it is none or too small."""
        value = self.number(column)
        if not value.is_integer() or value < at_least:
            raise self.bad(column, f"is {shown(self.text(column))}", f"use a whole number ≥ {at_least}")
        return int(value)

    def gpus(self, column: str) -> int:
        """The cell as a number of GPUs. Raises MalformedRow if it is none, or more than any cluster has."""
        value = self.whole(column, at_least=0)
        if value > MOST_GPUS:
            raise self.bad(column, f"is {shown(self.text(column))}", f"use at most {MOST_GPUS} GPUs")
        return value

    def bad(self, column: str, what: str, remedy: str) -> MalformedRow:
        """The error that says what is wrong with a cell of this row."""
        return MalformedRow(f"{self.path}, {self.unit} {self.line}: {column} {what}; {remedy}", f"{column}: {remedy}")


def plain_number(text: str) -> float:
    """A number as programs print it, `1e3` too; NaN for anything else, such as 1_000 or other digits than 0–9."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def shown(value: object) -> str:
    """A value for a message: quoted, and not longer than a message can bear."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def refuse(error: MalformedRow) -> NoReturn:
    """Raise the error of a malformed row, where none is tolerated."""
    raise error


def read_rows(
    path: Path,
    columns: Sequence[str],
    on_malformed: Callable[[MalformedRow], None] = refuse,
    *,
    delimiter: str = ",",
    quoted: bool = True,
    names_without_header: Sequence[str] = (),
    how_to_get: str = "",
    whole_lines: bool = False,
    short_rows: bool = False,
) -> Iterator[CsvRow]:
    """The rows of a UTF-8 csv file, plain or gzip'ed, with a header that has at least `columns`.

    Args:
        on_malformed: takes the error of a line that is no row of this table; the line is skipped unless it raises.
        quoted: whether a cell may be quoted.
        names_without_header: the columns of a file whose first line is no header; empty if it must have one.
        how_to_get: said where a column is missing: how to obtain a file that has it.
        whole_lines: whether a file that ends in the middle of a line is refused: programs end their last line too.
        short_rows: whether a row may lack its last cells but those of `columns`, as of people's tables.

    Raises:
        BadInput: the file cannot be read or decoded, has no rows, or is cut short; OtherColumns if it lacks a column.
    """
    found = False
    header: list[str] | None = None
    for number, line in _lines(path):
        if header is None and delimiter == ",":
            delimiter = _delimiter_of(line, columns, names_without_header)
        try:
            cells = next(
                csv.reader(
                    (line,), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
                )
            )
        except csv.Error as error:
            if header is None:
                raise BadInput(f"{path}, line {number}: not a csv file: {error}") from error
            if whole_lines and not line.endswith("\n"):
                raise _cut_short(path, number, line) from error
            remedy = "mend its quotes and write one job a line"
            on_malformed(
                MalformedRow(f"{path}, line {number}: {shown(line.strip())} is no csv row: {error}; {remedy}", remedy)
            )
            continue
        if header is None:
            header, is_row = _header(path, cells, columns, names_without_header, how_to_get)
            header = _of_a_spreadsheet(header, [name for name in header if name], header) if quoted else header
            if not is_row:
                continue
        found = True
        if whole_lines and not line.endswith("\n"):
            raise _cut_short(path, number, line)
        if quoted:
            cells = _of_a_spreadsheet(cells, header, columns if short_rows and line.endswith("\n") else header)
        if len(cells) != len(header):
            on_malformed(_of_another_width(path, number, cells, len(header), delimiter, quoted))
            continue
        yield CsvRow(path, number, dict(zip(header, cells, strict=True)))
    if header is None:
        raise BadInput(f"{path}: the file is empty; it needs a header with {', '.join(columns)}")
    if not found:
        raise BadInput(f"{path}: the file has a header but no rows")


def _delimiter_of(line: str, columns: Sequence[str], names_without_header: Sequence[str]) -> str:
    """What divides the first line to the columns that are needed: a comma, unless something else does and it not."""
    for mark in (",", *_OTHER_DELIMITERS):
        names = [cell.strip().strip('"') for cell in line.split(mark)]
        if set(columns) <= set(names) or (names_without_header and len(names) == len(names_without_header)):
            return mark
    return ","


def _of_a_spreadsheet(cells: list[str], header: Sequence[str], needed: Sequence[str]) -> list[str]:
    """A row as wide as the header, where it differs by empty cells at its end alone, none of them `needed`.

    Spreadsheets write them or not. Where nothing is quoted, that is in logs of programs, it shows a shift of cells.
    """
    if not any(cell.strip() for cell in cells[len(header) :]):
        cells = cells[: len(header)]
    if not set(header[len(cells) :]) & set(needed):
        cells = cells + [""] * (len(header) - len(cells))
    return cells


def _cut_short(path: Path, line: int, text: str) -> BadInput:
    """The error of a last line without an end: half a number is a number too, so nothing else says that it is whole."""
    return BadInput(
        f"{path}, line {line}: the file ends in the middle of a line and may be cut short; make it anew, or add a line"
        f" break at its end if {shown(text)} is the whole row"
    )


def _of_another_width(
    path: Path, line: int, cells: Sequence[str], columns: int, delimiter: str, quoted: bool
) -> MalformedRow:
    """The error of a row that has not as many cells as the header: they may stand beneath other names than theirs."""
    if len(cells) < columns:
        remedy = "give every row all its columns"
        return MalformedRow(
            f"{path}, line {line} has {len(cells)} of {columns} columns; {remedy}",
            f"fewer cells than the header: {remedy}",
        )
    # A decimal comma would shift the cells behind it, and be read as another job.
    remedy = (
        "write decimals with a point, and quote cells that hold a comma"
        if quoted
        else f"leave out the column whose cells hold a {delimiter!r}"
    )
    surplus = next((cell for cell in cells[columns:] if cell.strip()), cells[columns])
    return MalformedRow(
        f"{path}, line {line}: {shown(surplus)} stands beyond the header's {columns} columns; {remedy}",
        f"more cells than the header: {remedy}",
    )


def _header(
    path: Path, cells: list[str], columns: Sequence[str], names_without_header: Sequence[str], how_to_get: str
) -> tuple[list[str], bool]:
    """The columns' names by the first line, and whether that line is already a row."""
    names = [cell.strip() for cell in cells]
    missing = [name for name in columns if name not in names]
    if not missing:
        return names, False
    if names_without_header and not set(names) & set(columns) and len(names) == len(names_without_header):
        return list(names_without_header), True
    raise OtherColumns(
        f"{path}: column {missing[0]!r} is missing from the header {shown(','.join(names))};"
        f" it needs at least {', '.join(columns)}{how_to_get and '; '}{how_to_get}",
        names,
        missing,
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers.

    Raises:
        BadInput: the file cannot be read, or a line is not UTF-8.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                value = raw[error.start : error.start + 8]
                raise BadInput(
                    f"{path}, line {number}: {value!r} is not UTF-8 text; save the file as UTF-8 csv"
                ) from error
            if line.strip():
                yield number, line


def _refuse_packed(path: Path, beginning: bytes, tar_options: str) -> None:
    """Name a file that is no table but holds one. Raises BadInput."""
    if beginning[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise BadInput(f"{path}: is a tar archive: unpack it (tar {tar_options} {path.name})")
    for magic, what in _PACKED.items():
        if beginning.startswith(magic):
            raise BadInput(f"{path}: is {what}")


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, plain or gzip'ed; what its first bytes say counts, not its name.

    Raises:
        BadInput: it cannot be opened or read, also inside the block, is an archive, or packed in another way.
    """
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(path.open("rb"))
            if plain.peek(2)[:2] == _GZIP_MAGIC:
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=plain))
                _refuse_packed(path, unpacked.peek(_TAR_MAGIC_AT + len(_TAR_MAGIC)), tar_options="xzf")
                yield cast(IO[bytes], unpacked)
            else:
                _refuse_packed(path, plain.peek(_TAR_MAGIC_AT + len(_TAR_MAGIC)), tar_options="xf")
                yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: the gzip file is cut short or damaged ({error}); copy or compress it anew") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot read the file: {error.strerror}; give the path of a readable file") from error
