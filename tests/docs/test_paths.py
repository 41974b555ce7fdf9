"""Each reader of the guide gets through in a quarter of an hour: the path of each is short, and so is the whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_pages import ROOT

GUIDE = ROOT / "docs" / "guide" / "README.md"
MOST_WORDS = 2_500
_PART = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
PATHS = dict(_PART.findall(GUIDE.read_text(encoding="utf-8").partition("## To look up")[0]))


def section(page: Path, anchor: str) -> str:
    """A page, or what stands below one of its headings until the next of its level or above; code is no heading."""
    text = page.read_text(encoding="utf-8")
    if not anchor:
        return text
    kept: list[str] = []
    level, in_code = 0, False
    for line in text.splitlines():
        in_code ^= line.lstrip().startswith("```")
        heading = None if in_code else re.match(r"(#+) (.+)", line)
        if heading is not None:
            name = re.sub(r"[^\w\- ]", "", heading[2].lower()).strip().replace(" ", "-")
            if level == 0 and name == anchor:
                level = len(heading[1])
            elif 0 < len(heading[1]) <= level:
                break
        if level:
            kept.append(line)
    assert kept, f"{page} has no {anchor}"
    return "\n".join(kept)


def words_of(links: list[str]) -> int:
    parts = [(GUIDE.parent / link.partition("#")[0], link.partition("#")[2]) for link in links]
    return sum(len(section(page, anchor).split()) for page, anchor in parts)


def test_there_is_a_path_for_each_reader() -> None:
    assert list(PATHS)[:3] == ["Owner of a workstation", "ML engineer", "Cluster operator"]
    assert list(PATHS)[3:] == ["Platform owner", "Researcher", "Contributor"]


@pytest.mark.parametrize("reader", PATHS)
def test_a_path_is_read_in_a_quarter_of_an_hour(reader: str) -> None:
    links = _LINK.findall(PATHS[reader])
    assert 0 < words_of(links) <= MOST_WORDS, links


def test_a_section_ends_where_the_next_begins(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\none\n## B, c\ntwo\n```sh\n# three\n```\n### D\nfour\n## E\nfive\n")
    assert section(page, "b-c").split() == ["##", "B,", "c", "two", "```sh", "#", "three", "```", "###", "D", "four"]
    assert words_of([str(page)]) > words_of([f"{page}#e"]) == 3
