"""The files that the site is made of, and what each is called there.

All of docs/, README.md as the first page, CHANGELOG.md, and whatever else of the repository a page links to: the site
has a copy of it, as it cannot know where the repository can be read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.site.markdown import links
from foundation.errors import ExpectedError

_DOCS = "docs/"
_STARTS = ("README.md", "CHANGELOG.md")


class BrokenLink(ExpectedError):
    """A page links to what is not there, or to a folder."""


@dataclass(frozen=True)
class Sources:
    """Names in the site by names in the repository, both with `/` and relative to their roots."""

    names: Mapping[str, str]

    def link(self, page: str, target: str) -> str:
        """The target that a link has in the site.

        Args:
            page: the page that has it, as it is called in the repository.
            target: as it stands there.
        """
        path, mark, anchor = target.partition("#")
        if not path or "://" in target:
            return target
        there = self.names[_linked(page, path)]
        return posixpath.relpath(there, posixpath.dirname(self.names[page]) or ".") + mark + anchor


def find_sources(root: Path) -> Sources:
    """Follow the links of all pages.

    Args:
        root: of the repository.

    Raises:
        BrokenLink: a target is no file.
    """
    waiting = [*_STARTS, *(path.relative_to(root).as_posix() for path in (root / _DOCS).rglob("*") if _is_ours(path))]
    names: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names[name] = _site_name(name)
        if not name.endswith(".md"):
            continue
        for target in links((root / name).read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            if path and "://" not in target:
                linked = _linked(name, path)
                if not (root / linked).is_file():
                    raise BrokenLink(f"{name}: the link {target} leads to no file; name a file of the repository")
                waiting.append(linked)
    return Sources(names)


def _is_ours(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _linked(page: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _site_name(name: str) -> str:
    if name.startswith(_DOCS):
        return name.removeprefix(_DOCS)
    if name == "README.md":
        return "index.md"
    # A server tells browsers by the suffix that it is to be shown.
    return name if posixpath.splitext(name)[1] else f"{name}.txt"
