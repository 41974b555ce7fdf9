"""Links within the documentation lead somewhere."""

import re
from pathlib import Path

import pytest
from docs_pages import PAGES, ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
SOURCES = (
    "foundation",
    "policy_net",
    "elastic_runtime",
    "cluster_agent",
    "global_learner",
    "deploy",
    "benchmarks",
    "tests",
)


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
    for page in (ROOT / "docs/decisions").glob("*.md"):
        assert f"({page.name})" in listed or page.name == "README.md", f"{page.name} is not in the list of decisions"


@pytest.mark.parametrize("page", DECISIONS, ids=[page.stem for page in DECISIONS])
def test_a_decision_has_its_evidence_and_its_price(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parts = ("**Context", "**Decision", "**Evidence", "**Price", "**Would change it")
    assert [part for part in parts if part not in text] == []


def test_a_decision_is_named_by_the_number_of_the_page_that_holds_it() -> None:
    """In comments (`docs/decisions/NNNN`, `decision NNNN`) and in the text of links."""
    living = {page.name[:4] for page in DECISIONS}
    sources = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    for path in (*PAGES, *sources):
        text = path.read_text(encoding="utf-8")
        gone = set(re.findall(r"\b(?:docs/decisions/|decision )(\d{4})\b", text)) - living
        assert not gone, f"{path}: no page of decisions has the number {gone}"
        for shown, target in re.findall(r"\[[^\]]*?\b(\d{4})\]\([^)]*?(\d{4})-[\w-]+\.md", text):
            assert shown == target, f"{path}: a link shows {shown} and leads to {target}"


def test_the_archive_names_once_each_number_that_has_no_page() -> None:
    archive = (ROOT / "docs/decisions/archive.md").read_text(encoding="utf-8")
    lines = re.findall(r"^- \[[^\]]+\]\([\w-]+\.md\): (\d{4}(?:, \d{4})*)$", archive, re.MULTILINE)
    assert len(lines) == archive.count("\n- ")
    archived = [number for line in lines for number in line.split(", ")]
    assert archived
    assert len(archived) == len(set(archived))
    assert not set(archived) & {page.name[:4] for page in DECISIONS}


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
