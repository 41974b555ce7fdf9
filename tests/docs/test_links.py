"""Links within the documentation lead somewhere."""

import re
from pathlib import Path

import pytest
from docs_pages import PAGES, ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_and_pictures_resolve(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page}: {link} leads nowhere"
        if anchor:
            assert anchor in _anchors(target), f"{page}: {link}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
        waiting += [target for link in links if link and (target := (page.parent / link).resolve()).suffix == ".md"]
    missing = [page.relative_to(ROOT) for page in PAGES if page not in reached and page.name != "CHANGELOG.md"]
    assert not missing, f"nobody finds {missing}"


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    for record in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert f"({record.name})" in listed, f"{record.name} is not in the list of decisions"


def test_every_csv_file_of_results_is_linked_from_its_page() -> None:
    results = ROOT / "docs/results"
    files = [path.relative_to(results) for path in results.glob("*/*.csv") if path.parent.name != "dl2"]
    assert files
    missing = [
        str(path)
        for path in files
        if f"]({path.as_posix()})" not in (results / f"{path.parent}.md").read_text(encoding="utf-8")
    ]
    assert not missing, "dl2 has a file for each figure of the paper; all others are linked one by one"
