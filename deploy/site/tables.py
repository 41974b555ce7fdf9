"""Tables of a built page that a phone has no room for: each cell gets its column's heading, and the style stacks them.

Only a style sheet knows how wide a page is, and it cannot find a cell's heading by itself. A generator knows neither.
"""

from __future__ import annotations

import html
import re

_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
"""It may be broken anywhere, and so needs no room."""
_BREAKS = re.compile(r"[\s\-–/]+")
ROOMY_COLUMNS, MOST_COLUMNS = 4, 5
"""So many always find room, as words are broken where they must be, and more than so many never do."""
_ROOM_LETTERS = 38.0
"""What a line of 390 pixels holds beside the room between five columns; measured on these pages."""
_NARROWEST_LETTERS = 6.2
_LONG_LETTERS = 26
"""Longer texts have a line of their own: a third of a phone's line holds some fifteen letters."""
_ODD_CELLS = 4
"""Three and one look forgotten; two and two do not."""


def with_headings(page: str) -> str:
    """The page, in which tables that are too wide for a phone have `data-stacks`: how many cells go on a line there.

    Their cells have the column's heading as `data-name`, and `data-long` where a text of the column is a sentence.
    """
    return _TABLE.sub(lambda found: _stacking(found[1]) or found[0], page)


def _stacking(body: str) -> str:
    """The marked table; empty where a phone has room for it, or where a row has other columns than the head."""
    rows = [[_text(cell[2]) for cell in _CELL.findall(row)] for row in _ROW.findall(body)]
    headings = rows[0] if rows else []
    if not headings or any(len(row) != len(headings) for row in rows) or _fits(body, len(headings)):
        return ""
    columns = list(zip(*rows[1:], strict=True))
    is_long = [max(map(len, column)) > _LONG_LETTERS for column in columns] or [False] * len(headings)
    # A row's name says what it is, but for a number alone.
    names = (
        [headings[0] if any(text[:1].isdigit() for text in columns[0]) else "", *headings[1:]] if columns else headings
    )
    a_line = 2 if is_long[1:].count(False) == _ODD_CELLS else 3

    def marked(row: re.Match[str]) -> str:
        marks = iter(zip(names, is_long, strict=True))

        def named(cell: re.Match[str]) -> str:
            heading, long = next(marks)
            name = f' data-name="{html.escape(heading)}"' if heading else ""
            return f"<td{cell[2]}{name}{' data-long' if long else ''}>{cell[3]}</td>" if cell[1] == "td" else cell[0]

        return f"<tr>{_CELL.sub(named, row[1])}</tr>"

    return f'<table data-stacks="{a_line}">{_ROW.sub(marked, body)}</table>'


def _fits(body: str, columns: int) -> bool:
    """Whether the longest words of all columns find room beside each other."""
    if columns <= ROOMY_COLUMNS or columns > MOST_COLUMNS:
        return columns <= ROOMY_COLUMNS
    widest = [_NARROWEST_LETTERS] * columns
    for row in _ROW.findall(body):
        for place, (_, _, inner) in enumerate(_CELL.findall(row)):
            words = _BREAKS.split(_text(_CODE.sub("", inner)))
            widest[place] = max(widest[place], *map(len, words))
    return sum(widest) <= _ROOM_LETTERS


def _text(inner: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", inner)).split())
