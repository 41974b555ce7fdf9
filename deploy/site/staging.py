"""The folder that the site is built from: every page as Python-Markdown wants it, and the generator's configuration.

Nothing is left for the generator to do that is ours: it needs no hook and no plugin of our own, and another generator
that reads `mkdocs.yml` takes the folder as it is.
"""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path
from typing import Any

import mmdr
import yaml

from deploy.site.markdown import with_diagrams, with_links, with_plain_lists
from deploy.site.sources import Sources, find_sources

CONFIGURATION = Path(__file__).with_name("mkdocs.yml")
_STYLE = Path(__file__).with_name("site.css")
PAGES = "pages"
_BEHIND = ("CHANGELOG.md", "docs/decisions/", "docs/experiments.md", "docs/results/")
_FOUND_LATER = "---\nsearch:\n  boost: 0.3\n---\n\n"
"""Heads those pages: who searches for a word wants to use it first, and to know its history then."""
_DIAGRAMS = "diagrams"
_SCALE = 0.8
_LOOK = "%%{init: {'theme': 'neutral', 'themeVariables': {'fontFamily': 'sans-serif'}}}%%\n"


def stage(root: Path, folder: Path) -> Path:
    """Fill the folder anew.

    Args:
        root: of the repository.
        folder: removed first, if it is there.

    Returns:
        The generator's configuration in it.

    Raises:
        BrokenLink: a page's link leads to no file.
    """
    sources = find_sources(root)
    if folder.exists():
        shutil.rmtree(folder)
    pages = folder / PAGES
    for name, site_name in sources.names.items():
        path = pages / site_name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            path.write_text(_page(root, pages, sources, name), encoding="utf-8")
        else:
            shutil.copyfile(root / name, path)
    shutil.copyfile(_STYLE, pages / _STYLE.name)
    text = CONFIGURATION.read_text(encoding="utf-8")
    head, mark, navigation = text.partition("\nnav:\n")
    nav = with_folders(yaml.safe_load(f"nav:\n{navigation}")["nav"], sorted(sources.names.values()))
    configuration = folder / CONFIGURATION.name
    configuration.write_text(head + mark[:1] + yaml.safe_dump({"nav": nav}, sort_keys=False), encoding="utf-8")
    return configuration


def with_folders(navigation: list[Any], names: list[str]) -> list[Any]:
    """The navigation with a folder's pages where it names one, such as `decisions/`: its README first, then by name."""
    entries: list[Any] = []
    for entry in navigation:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            entries.append({title: with_folders(below, names) if isinstance(below, list) else below})
        elif entry.endswith("/"):
            pages = [name for name in names if name.startswith(entry) and name.endswith(".md")]
            entries += sorted(pages, key=lambda name: (not name.endswith("README.md"), name))
        else:
            entries.append(entry)
    return entries


def _drawn(source: str) -> str:
    """A diagram as SVG, in the size in which its letters are as large as a page's."""
    drawing = str(mmdr.render(_LOOK + source).svg())
    width, height = (_SCALE * float(part) for part in drawing.partition('viewBox="')[2].partition('"')[0].split()[2:])
    return drawing.replace('width="100%"', f'width="{width:.0f}" height="{height:.0f}"', 1)


def _page(root: Path, pages: Path, sources: Sources, name: str) -> str:
    """One page's text; its diagrams are written beside it."""
    folder = posixpath.join(posixpath.dirname(sources.names[name]), _DIAGRAMS)
    drawn = 0

    def picture(source: str, heading: str) -> str:
        nonlocal drawn
        drawn += 1
        stem = posixpath.splitext(posixpath.basename(name))[0]
        path = posixpath.join(folder, f"{stem}-{drawn}.svg")
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        (pages / path).write_text(_drawn(source), encoding="utf-8")
        there = f"{_DIAGRAMS}/{posixpath.basename(path)}"
        return f"[![Diagram: {heading}]({there})]({there})"

    text = (root / name).read_text(encoding="utf-8")
    text = with_links(text, lambda target: sources.link(name, target))
    head = _FOUND_LATER if name.startswith(_BEHIND) else ""
    return head + with_plain_lists(with_diagrams(text, picture))
