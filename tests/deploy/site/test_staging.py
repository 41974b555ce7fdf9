"""What the site is made of: every page, what pages link to outside of docs/, and a navigation with whole folders."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.site.__main__ import generate
from deploy.site.sources import BrokenLink, find_sources
from deploy.site.staging import stage, with_folders

NAMES = ["decisions/0002-b.md", "decisions/0001-a.md", "decisions/README.md", "decisions/x.png", "guide/a.md"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small repository."""
    for name, text in {
        "README.md": "# Start\n\nSee [a](docs/guide/a.md#part) and [the licence](LICENSE).\n",
        "CHANGELOG.md": "# Changelog\n\n[Start](README.md)\n",
        "LICENSE": "Do what you like.\n",
        "tests/README.md": "# Tests\n\n[back](../docs/guide/a.md)\n",
        "docs/guide/a.md": "# A\n\n## Part\n\n[start](../../README.md), [tests](../../tests/README.md), [b](b.md)\n",
        "docs/guide/b.md": "# B\n\n[web](https://example.org/a.md)\n\n```mermaid\nflowchart LR\n  a --> b\n```\n",
        "docs/images/c.png": "a picture",
    }.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


def test_links_lead_to_the_same_file_in_the_site(root: Path) -> None:
    sources = find_sources(root)
    assert sources.link("README.md", "docs/guide/a.md#part") == "guide/a.md#part"
    assert sources.link("README.md", "LICENSE") == "LICENSE.txt"
    assert sources.link("docs/guide/a.md", "../../README.md") == "../index.md"
    assert sources.link("docs/guide/a.md", "../../tests/README.md") == "../tests/README.md"
    assert sources.link("tests/README.md", "../docs/guide/a.md") == "../guide/a.md"
    for same in ("#part", "https://example.org/a.md"):
        assert sources.link("docs/guide/a.md", same) == same


def test_a_link_to_nothing_is_told_with_its_page(root: Path) -> None:
    (root / "docs/guide/b.md").write_text("[gone](gone.md)\n")
    with pytest.raises(BrokenLink, match=r"docs/guide/b\.md: the link gone\.md leads to no file"):
        find_sources(root)


def test_a_link_to_a_folder_is_refused_since_a_site_shows_none(root: Path) -> None:
    (root / "docs/guide/b.md").write_text("[all](../images)\n")
    with pytest.raises(BrokenLink, match="leads to no file"):
        find_sources(root)


def test_everything_lies_where_links_say_and_what_was_there_before_is_gone(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "staged"
    (folder / "pages").mkdir(parents=True)
    (folder / "pages" / "old.md").write_text("old")
    assert stage(root, folder) == folder / "mkdocs.yml"
    pages = folder / "pages"
    assert {path.relative_to(pages).as_posix() for path in pages.rglob("*") if path.is_file()} == {
        *("index.md", "CHANGELOG.md", "LICENSE.txt", "tests/README.md", "guide/a.md", "guide/b.md"),
        *("guide/diagrams/b-1.svg", "images/c.png", "site.css"),
    }
    assert "](guide/a.md#part) and [the licence](LICENSE.txt)" in (pages / "index.md").read_text()
    assert "[![Diagram: B](diagrams/b-1.svg)](diagrams/b-1.svg)" in (pages / "guide/b.md").read_text()
    assert (pages / "CHANGELOG.md").read_text().startswith("---\nsearch:"), "the search finds it behind the guide"
    assert (pages / "guide/a.md").read_text().startswith("# A")
    drawing = (pages / "guide/diagrams/b-1.svg").read_text()
    assert drawing.startswith("<svg")
    assert 'width="100%"' not in drawing, "a page shows it in a size of its own"


def test_a_folder_in_the_navigation_stands_for_its_pages_in_order() -> None:
    navigation = ["guide/a.md", {"Decisions": ["decisions/"]}, {"Words": "guide/a.md"}]
    assert with_folders(navigation, NAMES) == [
        "guide/a.md",
        {"Decisions": ["decisions/README.md", "decisions/0001-a.md", "decisions/0002-b.md"]},
        {"Words": "guide/a.md"},
    ]


@pytest.mark.heavy
def test_what_is_wrong_with_a_page_fails_the_build_with_its_name(root: Path, tmp_path: Path) -> None:
    configuration = stage(root, tmp_path / "staged")
    head = configuration.read_text().partition("\nnav:\n")[0]
    pages = ["index.md", "CHANGELOG.md", "tests/README.md", "guide/a.md", "guide/b.md"]
    configuration.write_text(f"{head}\n{yaml.safe_dump({'nav': pages})}")
    assert generate(configuration, tmp_path / "site") == []
    assert (tmp_path / "site/guide/b.html").is_file()

    (tmp_path / "staged/pages/guide/b.md").write_text("# B\n\n[part](a.md#no-such-part)\n")
    (tmp_path / "staged/pages/guide/lost.md").write_text("# Lost\n")
    reported = "\n".join(generate(configuration, tmp_path / "site"))
    assert "guide/lost.md" in reported, "no page may be out of the navigation"
    assert "no-such-part" in reported, "no anchor may lead nowhere"
