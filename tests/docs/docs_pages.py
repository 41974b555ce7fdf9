"""The documentation as the tests read it."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])

_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, also those within a list."""
    return [
        textwrap.dedent(body) for found, body in _FENCED.findall(page.read_text(encoding="utf-8")) if found == language
    ]


def command_lines(page: Path) -> list[str]:
    """Every line of every shell block."""
    return [line.strip() for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


def code(page: Path) -> list[str]:
    """Whatever is set as code: shell lines and words in backquotes."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return command_lines(page) + _INLINE.findall(text)
