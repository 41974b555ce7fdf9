"""The words of the glossary are linked where a page uses them first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
GLOSSARY = "glossary.md"
WRITTEN_BY_PROGRAMS = ("settings.md", "commands.md", "metrics.md", "refusals.md")
FOR_DEVELOPERS = ("experiments.md", "contributing.md")
PAGES = [
    page
    for page in (
        ROOT / "README.md",
        *sorted([*GUIDE.glob("*.md"), *GUIDE.parent.glob("*.md"), *ROOT.glob("docs/results/*.md")]),
    )
    if page.name not in (GLOSSARY, *WRITTEN_BY_PROGRAMS, *FOR_DEVELOPERS) and page != GUIDE / "README.md"
]
OTHER_SENSE = {
    ("elastic-operations.md", "head"),  # a script's first lines
    ("README.md", "head"),  # a file's
    ("adding.md", "head"),
    ("scaling.md", "guard"),  # that of connections
}
"""Pages that mean something else."""


def words() -> list[str]:
    """The glossary's words, as their anchors have them."""
    return [line[3:].lower() for line in (GUIDE / GLOSSARY).read_text().splitlines() if line.startswith("## ")]


def without_code(text: str) -> str:
    """What is read as prose: no code, no headings."""
    text = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    return re.sub(r"^(#|    ).*$", " ", text, flags=re.MULTILINE)


def first_use(text: str, word: str) -> str | None:
    """The target of the link that the first use of a word is; empty if it is none, None where it is not used.

    A link about something else that has the word in its text is no use of it.
    """
    use = rf"(?<![\w-])({word}s?)(?![\w-])"
    for found in re.finditer(rf"!?\[([^\]]*)\]\(([^)]*)\)|{use}", text, flags=re.IGNORECASE):
        inside, target, bare = found.groups()
        if bare is not None:
            return ""
        if re.fullmatch(rf"{word}s?", inside, flags=re.IGNORECASE):
            return str(target)
    return None


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_the_first_use_of_a_word_leads_to_the_glossary(page: Path) -> None:
    text = without_code(page.read_text())
    missing = [word for word in words() if (page.name, word) not in OTHER_SENSE and first_use(text, word) == ""]
    assert missing == []


def test_the_search_finds_what_is_not_linked() -> None:
    assert first_use("a head, and [head](glossary.md#head)", "head") == ""
    assert first_use("[the head of it](x.md) and [heads](glossary.md#head), then head", "head") == "glossary.md#head"
    assert first_use("ahead, head-on, `code`", "head") is None
    assert {"jct", "head", "prior", "split", "staleness", "guard", "incarnation", "twin"} <= set(words())
