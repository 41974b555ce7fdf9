"""Table that fits a terminal: whole columns, as many as the width holds.

A number that is split over two lines is read wrongly, so columns are left out instead, the least telling first. Before
that, long names of rows are shortened, to two dozen letters, and to less where two columns do not fit side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

USUAL_NAME, SHORTEST_NAME = 24, 8
FEWEST_COLUMNS = 2
"""A row's name, and the figure that tells most."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, perhaps of several lines, and how soon it is left out (the largest first)."""

    heading: str
    left_out: int


def fitted_table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of texts that is no wider than `width`; the first column is that of the rows' names."""
    kept = list(range(len(columns)))
    widths = [
        max(cell_len(text) for text in (*column.heading.split("\n"), *(row[index] for row in rows)))
        for index, column in enumerate(columns)
    ]
    if _needed(widths, kept) > width:
        widths[0] = min(widths[0], USUAL_NAME)
    while _needed(widths, kept) > width and len(kept) > FEWEST_COLUMNS:
        kept.remove(max(kept[1:], key=lambda index: columns[index].left_out))
    longest_name = max(widths[0] - max(_needed(widths, kept) - width, 0), SHORTEST_NAME)
    table = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for index in kept:
        # Rich would take a unit such as [h] for an instruction.
        table.add_column(escape(columns[index].heading), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        name = _shortened(row[0], longest_name)
        table.add_row(*(escape(row[index] if index else name) for index in kept))
    return table


def _needed(widths: Sequence[int], kept: Sequence[int]) -> int:
    """With two blanks between columns, and one on each side."""
    return sum(widths[index] for index in kept) + 2 * len(kept)


def _shortened(name: str, longest: int) -> str:
    """Of a long name the end, which tells policy files apart."""
    return name if cell_len(name) <= longest else f"…{name[1 - longest :]}"
