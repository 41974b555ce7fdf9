"""What every table is held to, whichever program prints it: nothing wider, no figure or version cut, no raw name."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from rich.console import Console, RenderableType

Sample = Callable[[], RenderableType]
WIDTHS = (60, 80, 120)
WIDE = 4000
RAW_NAME = re.compile(r"(?<![\w./])[a-z0-9]+(?:_[a-z0-9]+)+")
"""A field's name as JSON has it; a setting, such as `scores.enabled`, is named with its section."""


def printed(shown: RenderableType, width: int, *, colour: bool = False) -> str:
    """As a terminal of so many columns shows it."""
    out = io.StringIO()
    system = "truecolor" if colour else None
    Console(file=out, width=width, force_terminal=colour, color_system=system, highlight=False).print(shown)
    return out.getvalue()


def broken_words(narrow: str, wide: str, width: int) -> list[str]:
    """Words with digits that are not what they are where there is room for everything."""
    whole = set(wide.split())
    too_long = [word for word in whole if len(word) > width - 4]  # such as digests of 64 letters: they must go on
    ends = [word for word in whole if not re.fullmatch(r"\W*v?\d[\d.,%]*\W*", word)]

    def fits(word: str) -> bool:
        if word.startswith("…"):  # a name's end; a figure or version never
            return any(name.endswith(word[1:]) for name in ends)
        said = word.rstrip(",") if word.rstrip(",") in whole else word  # a heading in the list of those left out
        return said in whole or any(said in long for long in too_long)

    return [word for word in narrow.split() if re.search(r"\d|…", word) and not fits(word)]


def check_table(sample: Sample, width: int) -> None:
    """Fails unless the table fits, says whole figures and nothing raw, and is the same without colour."""
    text = printed(sample(), width)
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert broken_words(text, printed(sample(), WIDE), width) == []
    assert RAW_NAME.findall(text) == []
    assert "\x1b" not in text
    coloured = printed(sample(), width, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text
