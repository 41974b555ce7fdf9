"""Figures as people read them, times in one fitting unit, and as a csv has them, a row a thing with dotted names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time."""

    name: str
    seconds: float

    def number(self, seconds: float) -> str:
        """The bare number, with about three digits."""
        value = seconds / self.seconds
        if abs(value) >= 100 or value == 0:
            return f"{value:,.0f}"
        return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"

    def text(self, seconds: float) -> str:
        """Number and unit, as in a sentence: 3 h, 11.8 h."""
        number = self.number(seconds).removesuffix(".0")
        return f"{number} {'day' if (number, self.name) == ('1', 'days') else self.name}"


UNITS = (Unit("s", 1.0), Unit("min", 60.0), Unit("h", 3600.0), Unit("days", 86400.0))
_UP_TO = (120.0, 2 * 3600.0, 72 * 3600.0)
_MOST = 500
"""A number beyond it is harder to read than one below 1."""


def unit_for(*seconds: float) -> Unit:
    """The one unit in which all these times are best read: that of the longest, or less if the shortest asks for it."""
    longest, shortest = max(seconds), min(seconds)
    index = sum(longest >= limit for limit in _UP_TO)
    while index and shortest < UNITS[index].seconds and longest < _MOST * UNITS[index - 1].seconds:
        index -= 1
    return UNITS[index]


def duration(seconds: float) -> str:
    """A single time in its own unit."""
    return unit_for(seconds).text(seconds)


def percent(share: float) -> str:
    """A share; "all" and "nothing" are said only of what is just that."""
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return f"{min(max(share, 0.001), 0.999):.1%}"
    return f"{share:.0%}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: no job, 1 job, 1,000 jobs."""
    if number == 0:
        return f"no {noun}"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shown(text: str) -> str:
    """A name from a file as it can be written and drawn: whatever is no printable character becomes �."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def hours(seconds: float) -> str:
    """A sum of hours: whole ones, unless they are few."""
    value = seconds / 3600
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """What is nested by dotted names; lists as one text, so that values can be compared and shown."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            found[f"{prefix}{name}"] = ", ".join(map(str, value))
        elif isinstance(value, bool | int | float | str) or value is None:
            found[f"{prefix}{name}"] = None if isinstance(value, float) and not math.isfinite(value) else value
        else:
            found[f"{prefix}{name}"] = str(value)
    return found


def headed(things: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Headings and cells of things that need not have the same names; a cell of which nothing is known is empty."""
    rows = [flat(thing) for thing in things]
    # A thing may have a figure or nothing where another has several figures: then the several are columns.
    nested = {name.rpartition(".")[0] for row in rows for name in row}
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in nested]
    return names, [[_cell(row.get(name)) for name in names] for row in rows]


def _cell(value: Any) -> Any:
    """What a terminal obeys, and the end of a line, stands as its escape."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in value)
    return "" if value is None else value
