"""The documentation's site is built strictly, leads each reader to their part, and asks no other host for anything."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import CONTRAST, OVERFLOW, chromium, complaints, look, until
from docs_pages import PAGES, ROOT
from selenium.webdriver.common.by import By

from deploy.site.__main__ import generate
from deploy.site.staging import stage

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "object": "data"}
"""Attributes that a browser follows by itself; those of `link`, where its `rel` says so."""
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)")
READERS = ("Start", "Cluster operator", "Platform owner", "ML engineer", "Researcher", "Developer", "Glossary")


class Read(HTMLParser):
    """What a page fetches, and what its tags say."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.classes: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.classes |= set(values.get("class", "").split())
        self.fetched += IN_STYLE.findall(values.get("style", ""))
        if tag == "a":
            self.links.append(values.get("href", ""))
        if tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])
        if tag == "link" and values.get("rel") not in NOT_FETCHED:
            self.fetched.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    assert generate(stage(ROOT, folder / "source"), folder / "site") == []
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Read]:
    return {path.relative_to(site).as_posix(): Read(path) for path in site.rglob("*.html")}


def test_every_page_is_in_the_site(pages: dict[str, Read]) -> None:
    in_site = {name.removesuffix(".html").removesuffix("index") for name in pages}
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/").removesuffix(".md").removesuffix("README")
        assert name in in_site, f"{page} is not in the site"


def test_every_page_leads_to_each_reader_s_part(pages: dict[str, Read], site: Path) -> None:
    for name in ("index.html", "guide/rollouts.html", "decisions/0035-rooms.html"):
        text = (site / name).read_text(encoding="utf-8")
        tabs = text.partition('class="md-tabs__list"')[2].partition("</ul>")[0]
        found = [" ".join(re.sub(r"<[^>]+>", " ", item).split()) for item in tabs.split("<li")[1:]]
        assert [tab.rpartition(">")[2].strip() for tab in found] == [*READERS[:-1], "Reference", READERS[-1]]


def test_links_lead_to_files_of_the_site(pages: dict[str, Read], site: Path) -> None:
    for name, page in pages.items():
        for link in page.links:
            path = link.partition("#")[0]
            if path and not ELSEWHERE.match(path) and name != "404.html":
                assert (site / name).parent.joinpath(path).resolve().is_file(), f"{name}: {link}"


def test_nothing_is_fetched_from_other_hosts(pages: dict[str, Read], site: Path) -> None:
    assert sum(len(page.fetched) for page in pages.values()) > 3 * len(pages)
    for name, page in pages.items():
        assert [link for link in page.fetched if ELSEWHERE.match(link)] == [], name
    sheets = [*site.rglob("*.css"), *site.rglob("*.svg")]
    assert len(sheets) > 5
    for path in sheets:
        found = IN_STYLE.findall(path.read_text(encoding="utf-8"))
        assert [link for link in found if ELSEWHERE.match(link)] == [], path.name


def test_no_page_has_what_the_theme_would_fetch_something_for(pages: dict[str, Read]) -> None:
    """Its script asks other hosts for a library that draws Mermaid in the browser, and for a repository's figures."""
    for name, page in pages.items():
        assert not page.classes & {"mermaid", "md-source"}, name


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.heavy
def test_in_a_browser_it_is_searched_and_asks_nobody_else(address: str) -> None:
    with chromium() as browser:
        for width, dark in ((1280, False), (390, True)):
            look(browser, width, dark)
            for name in ("index.html", "architecture.html", "guide/settings.html"):
                browser.get(f"{address}/{name}")
                asked = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
                assert asked
                assert [url for url in asked if not url.startswith(address)] == []
                wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert browser.execute_script(wider) == 0, f"{name} is wider than {width} pixels"
        look(browser, 1280)
        browser.get(f"{address}/index.html")
        browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("every_steps")
        until(browser, ".md-search-result__list", "Settings")
        assert [said for said in complaints(browser) if "favicon" not in str(said)] == []


WITH_WIDE_TABLES = ("results/index.html", "results/twin_learning.html", "results/baselines.html")
REFERENCE = ("guide/settings.html", "guide/commands.html", "guide/metrics.html")


@pytest.mark.heavy
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_telephone_pages_are_read_in_either_light_and_tables_whole(address: str, dark: bool) -> None:
    tables = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
    scrolled = f"return {tables}.filter((part) => part.scrollWidth > part.clientWidth).length"
    with chromium() as browser:
        look(browser, 390, dark)
        for page in ("index.html", "decisions/index.html", *WITH_WIDE_TABLES, *REFERENCE):
            browser.get(f"{address}/{page}")
            assert browser.execute_script(OVERFLOW) <= 0, page
            weak = browser.execute_script(CONTRAST)
            # Lists and a search that are not open are drawn by the theme once they are.
            hidden = ("md-nav__title", "md-search-result")
            assert [found for found in weak if not any(name in found for name in hidden)] == [], page
            if page in (*REFERENCE, *WITH_WIDE_TABLES):
                assert browser.execute_script(scrolled) == 0, page
