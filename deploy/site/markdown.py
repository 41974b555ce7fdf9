"""Markdown as GitHub reads it, made into Markdown that says the same to Python-Markdown, which the site is built with.

Source: CommonMark 0.31 (list items, links), and what Python-Markdown does otherwise. It wants an empty line before a
list, and four columns before what belongs to an item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"\s*(`{3,})(\w*)\s*$")
_ITEM = re.compile(r"([-*+]|\d+\.) +(?=\S)")
_LINK = re.compile(r"(`[^`\n]*`)|(?<=\])\(([^)\s]+)\)")
"""Code, which is passed over, or the target of a link."""
_INDENT = " " * 4


def links(text: str) -> Iterator[str]:
    """The targets of a page's links and pictures, as they stand there, without those in code."""
    for line, is_prose in _lines(text):
        if is_prose:
            yield from (found[2] for found in _LINK.finditer(line) if found[2])


def with_links(text: str, target: Callable[[str], str]) -> str:
    """The page with other targets.

    Args:
        target: gives the new target for the one that stands there.
    """

    def changed(found: re.Match[str]) -> str:
        return found[1] or f"({target(found[2])})"

    return "".join(f"{_LINK.sub(changed, line) if is_prose else line}\n" for line, is_prose in _lines(text))


def with_diagrams(text: str, picture: Callable[[str, str], str]) -> str:
    """The page with a picture in place of each block of Mermaid.

    Args:
        picture: takes a diagram's source and the heading that it stands below, and gives what stands in its place.
    """
    written: list[str] = []
    source: list[str] | None = None
    heading = ""
    for line, is_prose in _lines(text):
        fence = None if is_prose else _FENCE.match(line)
        if source is not None:
            if fence is not None:
                written.append(picture("\n".join(source), heading))
                source = None
            else:
                source.append(line)
        elif fence is not None and fence[2] == "mermaid":
            source = []
        else:
            if is_prose and line.startswith("#"):
                heading = line.lstrip("# ")
            written.append(line)
    return "\n".join(written) + "\n"


def with_plain_lists(text: str) -> str:
    """The page with an empty line before each list, and items whose further parts stand four columns in."""
    written: list[str] = []
    before = ""
    width: int | None = None  # of the marker of the item that we are in
    for line, is_prose in _lines(text):
        item = _ITEM.match(line) if is_prose else None
        if item is not None:
            if width is None and before:
                written.append("")
            width = len(item[0])
        elif width is not None and line.startswith(" " * width):
            line = _INDENT + line[width:]  # noqa: PLW2901
        elif width is not None and line and not before:
            width = None
        written.append(line)
        before = line
    return "\n".join(written) + "\n"


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is prose: neither a fence nor between two of them."""
    opened: str | None = None
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if opened is not None:
            yield line, False
            if fence is not None and fence[1] == opened and not fence[2]:
                opened = None
        else:
            opened = fence[1] if fence is not None else None
            yield line, fence is None
