"""Tables on a terminal of any width: whole columns and whole figures, and what is said in words between or below them.

A number that is split over two lines is read wrongly. Before a column is left out, long names are shortened to two
dozen letters; which one goes first, its column says. Words stand beside the figures where they fit, and otherwise
below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.text import Text

from foundation.text import plain_line

USUAL_NAME, SHORTEST_NAME = 24, 8
FEWEST_COLUMNS = 2
"""A row's name, and the figure that tells most."""
NOTHING: Final = "–"
"""A cell of which nothing is known."""
_LEAST_WORDS = 30
"""Columns in which words are still read easily beside figures."""
_GAP, _INDENT = "  ", "  "
_LONGEST_LABEL = 24
"""On a terminal of 60 columns more than half is left for what is said."""
_LONGEST_CELL_CHARACTERS = 100_000
_FILE_WIDTH = 160
_EVERY_WIDTH = 100_000
_EXACT = 1e6
"""Figures from here on are shown in full, never as a power of ten."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        left_out: how soon it is left out where there is little room, the largest first and of equals the one furthest
            right; 0 stays as long as anything can be shortened.
        text: begins at the left and may be shortened, as a name; figures end at the right and are whole or not there.
        words: the last column only: sentences, which may go on over lines.
    """

    heading: str
    left_out: int = 0
    text: bool = False
    words: bool = False


class FittedTable:
    """Rows of figures, with at most one column of words, no wider than the terminal that they are printed on.

    Args:
        below: lines that stand below, each with its own indentation.
        for_programs: the same rows as a program reads them, with bare numbers and whole moments; None: as people do.
        program_headings: of these rows, where a program has more columns, a value each; empty: as people do.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        below: Sequence[str] = (),
        for_programs: Sequence[Sequence[str]] | None = None,
        program_headings: Sequence[str] = (),
    ) -> None:
        self.title = title
        self.program_headings = list(program_headings)
        self.rows = [tuple(map(_plain, row)) for row in rows]
        self._for_programs = self.rows if for_programs is None else [tuple(map(_plain, row)) for row in for_programs]
        self.below = tuple(below)
        figures = len(columns) - (bool(columns) and columns[-1].words)
        self._columns = tuple(columns[:figures])
        self._words = columns[-1].heading if figures < len(columns) else None

    @property
    def headings(self) -> list[str]:
        """Of all columns, each on one line."""
        words = [] if self._words is None else [self._words]
        return [_on_one_line(heading) for heading in (*(column.heading for column in self._columns), *words)]

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """All rows, whole, as a program reads them."""
        return list(self._for_programs)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, at the width that there is."""
        width = options.max_width
        kept, widths = self._fitted(width)
        rule = figures = self._needed(kept, widths)
        words_width = 0
        if self._words_fit(kept, widths, width):
            words_width = width - figures - len(_GAP)
            rule += len(_GAP) + min(words_width, max(map(cell_len, self._sentences())))
        yield from _wrapped(self.title, console, width, style="bold")
        headings = [self._columns[index].heading.split("\n") for index in kept]
        height = max(map(len, headings))
        for line in range(-height, 0):
            cells = [heading[line] if len(heading) + line >= 0 else "" for heading in headings]
            text = self._line(kept, widths, cells)
            if words_width and line == -1:
                text = set_cell_size(text, figures) + _GAP + (self._words or "")
            yield _one_line(text, "bold")
        yield _one_line(("-" if options.ascii_only else "─") * rule, "dim")
        for row in self.rows:
            yield from self._row(row, kept, widths, words_width, console, width)
        left_out = ", ".join(self.left_out(width))
        yield from _wrapped(f"no room for: {left_out}" if left_out else "", console, width, style="dim")
        for text in self.below:
            yield from _wrapped(text, console, width)

    def left_out(self, width: int) -> list[str]:
        """The headings of the columns that a terminal of so many columns has no room for."""
        kept, _ = self._fitted(width)
        headings = [column.heading for index, column in enumerate(self._columns) if index not in kept]
        return [_on_one_line(heading) for heading in headings]

    def _row(
        self,
        row: Sequence[str],
        kept: Sequence[int],
        widths: Sequence[int],
        words_width: int,
        console: Console,
        width: int,
    ) -> Iterator[Text]:
        figures = self._line(kept, widths, [row[index] for index in kept])
        text = row[-1] if self._words is not None else ""
        if not words_width:
            yield _one_line(figures)
            yield from _wrapped(_INDENT + text if text else "", console, width)
            return
        lines = Text(text).wrap(console, words_width, overflow="fold") if text else [Text("")]
        for number, line in enumerate(lines):
            start = figures if not number else ""
            yield _one_line((set_cell_size(start, self._needed(kept, widths)) + _GAP + line.plain).rstrip())

    def _line(self, kept: Sequence[int], widths: Sequence[int], cells: Sequence[str]) -> str:
        shown = []
        for index, cell in zip(kept, cells, strict=True):
            short = _shortened(cell, widths[index])
            blanks = " " * (widths[index] - cell_len(short))
            shown.append(short + blanks if self._is_text(index) else blanks + short)
        return _GAP.join(shown).rstrip()

    def _is_text(self, index: int) -> bool:
        return index == 0 or self._columns[index].text

    def _fitted(self, width: int) -> tuple[list[int], list[int]]:
        """The columns that there is room for, and how wide each is."""
        kept = list(range(len(self._columns)))
        widths = [
            max(map(cell_len, (*column.heading.split("\n"), *(row[index] for row in self.rows))))
            for index, column in enumerate(self._columns)
        ]
        shortest = [
            max(SHORTEST_NAME, *map(cell_len, column.heading.split("\n"))) if self._is_text(index) else widths[index]
            for index, column in enumerate(self._columns)
        ]
        if self._needed(kept, widths) > width:
            widths = [min(is_now, max(least, USUAL_NAME)) for is_now, least in zip(widths, shortest, strict=True)]
        while self._needed(kept, widths) > width and len(kept) > FEWEST_COLUMNS:
            first = max(reversed(kept[1:]), key=lambda index: self._columns[index].left_out)
            if not self._columns[first].left_out:
                break
            kept.remove(first)
        while self._needed(kept, widths) > width:
            longest = max(kept, key=lambda index: widths[index] - shortest[index])
            if widths[longest] <= shortest[longest]:
                if len(kept) <= FEWEST_COLUMNS:
                    break
                del kept[-1]
            else:
                widths[longest] -= 1
        return kept, widths

    @staticmethod
    def _needed(kept: Sequence[int], widths: Sequence[int]) -> int:
        return sum(widths[index] for index in kept) + len(_GAP) * (len(kept) - 1)

    def _words_fit(self, kept: Sequence[int], widths: Sequence[int], width: int) -> bool:
        """Whether there are words, and every one of them has room beside all figures."""
        sentences = self._sentences()
        if not any(sentences[1:]) or len(kept) < len(self._columns):
            return False
        width_left = width - self._needed(kept, widths) - len(_GAP)
        longest_word = max(cell_len(word) for text in sentences for word in text.split())
        return width_left >= max(map(cell_len, sentences)) or width_left >= max(_LEAST_WORDS, longest_word)

    def _sentences(self) -> list[str]:
        return [] if self._words is None else [self._words, *(row[-1] for row in self.rows)]


class FactSheet:
    """Facts about one thing, a label and what is said of it, no wider than the terminal that they are printed on.

    Args:
        below: lines that stand below, each with its own indentation.
    """

    def __init__(self, title: str, facts: Sequence[tuple[str, str]], below: Sequence[str] = ()) -> None:
        self.title = title
        self.facts = [(_plain(label), _plain(value)) for label, value in facts]
        self.below = tuple(below)

    @property
    def headings(self) -> list[str]:
        """Of the two columns that the facts are as a table."""
        return ["fact", "value"]

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """All facts, whole; one that goes on in another line has its label there too."""
        labels: list[str] = []
        for label, _ in self.facts:
            labels.append(label or (labels[-1] if labels else ""))
        return [(label, value) for label, (_, value) in zip(labels, self.facts, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, at the width that there is."""
        width = options.max_width
        yield from _wrapped(self.title, console, width, style="bold")
        labels = min(max((cell_len(label) for label, _ in self.facts), default=0), _LONGEST_LABEL)
        width_left = max(width - labels - len(_GAP), 1)
        for label, value in self.facts:
            longest_word = max(map(cell_len, value.split()), default=0)
            if width_left < longest_word <= width - len(_INDENT):  # whole, as a digest that is to be copied
                yield from _wrapped(label, console, width, style="bold")
                yield from _wrapped(_INDENT + value, console, width)
                continue
            names = Text(label).wrap(console, max(labels, 1), overflow="fold")
            values = Text(value).wrap(console, width_left, overflow="fold")
            for number in range(max(len(names), len(values))):
                name = names[number].plain.rstrip() if number < len(names) else ""
                text = values[number].plain.rstrip() if number < len(values) else ""
                line = Text.assemble((set_cell_size(name, labels), "bold"), _GAP, text)
                line.rstrip()
                yield _whole(line)
        for below in self.below:
            yield from _wrapped(below, console, width)


def table_console(*, wide: bool = False) -> Console:
    """Where tables go: as wide as the terminal or COLUMNS says; a file or a pipe has room for nearly all there is.

    Text is printed as it is: a name may hold what rich takes for its markup.

    Args:
        wide: nothing is left out, shortened, or goes on in a new line.
    """
    is_reported = os.environ.get("COLUMNS", "").isdigit()
    width = _EVERY_WIDTH if wide else None if is_reported or sys.stdout.isatty() else _FILE_WIDTH
    return _Console(width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the program's end; rich would end it here, with exit code 1."""
        raise BrokenPipeError


def in_words(value: Any) -> str:
    """A value of any depth on one line: `learning rate 0.06, pairs 16`; semicolons where a part has commas."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < _EXACT else f"{value:.1f}"
    if isinstance(value, dict):
        parts = [f"{name_in_words(str(name))} {in_words(part)}" for name, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [in_words(part) for part in value]
    else:
        return str(value)
    return ("; " if any("," in part for part in parts) else ", ").join(parts) or "none"


def name_in_words(key: str) -> str:
    """The name of a field as people read it."""
    return key.replace("_", " ")


def _on_one_line(heading: str) -> str:
    return " ".join(heading.split()).replace("/ ", "/").replace("- ", "-")


def _plain(text: str) -> str:
    """On one line, and nothing in it that a terminal obeys."""
    return plain_line(text, _LONGEST_CELL_CHARACTERS)


def _shortened(name: str, longest: int) -> str:
    """Of a long name the end, which tells policy files and clusters apart."""
    if cell_len(name) <= longest:
        return name
    end = name[-max(longest, 1) :]  # at once: what comes from elsewhere may be very long
    while end and cell_len(end) >= longest:
        end = end[1:]
    return f"…{end}"


def _wrapped(text: str, console: Console, width: int, style: str = "") -> Iterator[Text]:
    """Lines of words; the ones after the first keep the first one's indentation."""
    indent = min(len(text) - len(text.lstrip()), width // 2)
    text = _plain(text)
    if text:
        for line in Text(text).wrap(console, max(width - indent, 1), overflow="fold"):
            yield _one_line(" " * indent + line.plain.rstrip(), style)


def _one_line(text: str, style: str = "") -> Text:
    return _whole(Text(text, style))


def _whole(line: Text) -> Text:
    """Never wrapped; in a terminal that is too narrow for two columns one sees that something is cut off."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
