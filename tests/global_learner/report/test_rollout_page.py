"""Rollouts on the page in a real browser: drawn at any width and light, and free text of operators stays text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser import CONTRAST, OUTSIDE, OVERFLOW, chromium, complaints, look, text, until
from report_makers import EVIL, LONG, report, three
from rollout_histories import three_rollouts
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from global_learner.report.content import report_content
from global_learner.report.page import live_page, static_page
from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy

OPEN_ALL = "for (const past of document.querySelectorAll('details.past')) past.open = true"
HOSTILE = f'{EVIL} "><img src=x onerror=alert(1)> {{{{script}}}} ' + "x" * 200


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> pb.GetReportReply:
    """A fleet with one rollout that runs, one that was rolled back and one that is done."""
    rollouts, now = three_rollouts(tmp_path_factory.mktemp("state"))
    return report(three(), rollouts=rollouts, made_unix_seconds=now)


def opened(
    browser: WebDriver, reported: pb.GetReportReply, folder: Path, width: int = 1280, dark: bool = False
) -> None:
    (page := folder / "page.html").write_text(static_page(report_content(reported)), encoding="utf-8")
    look(browser, width, dark)
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", [1280, 1000, 360])
def test_rollouts_are_drawn_at_any_width_without_a_complaint(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path, width: int
) -> None:
    opened(browser, reported, tmp_path, width)
    assert [card.tag_name for card in browser.find_elements(By.CSS_SELECTOR, ".rollout")] == [
        "article", "details", "details",
    ]  # fmt: skip
    browser.execute_script(OPEN_ALL)
    charts = "return document.querySelectorAll('#rollouts svg').length"
    browser.execute_async_script(
        "const done = arguments[0]; const look = () => document.querySelectorAll('#rollouts svg').length === 3"
        " ? done() : requestAnimationFrame(look); look()"
    )
    assert browser.execute_script(charts) == 3
    assert complaints(browser) == []
    assert browser.execute_script(OVERFLOW) <= 0
    assert browser.execute_script(OUTSIDE) == []
    cells = browser.find_elements(By.CSS_SELECTOR, "table.members td")
    assert cells
    assert all(cell.get_attribute("data-name") for cell in cells)
    scrolled = "[...document.querySelectorAll('.sides .wide')].filter((part) => part.scrollWidth > part.clientWidth)"
    assert browser.execute_script(f"return {scrolled}.length") == 0


@pytest.mark.parametrize("dark", [False, True])
def test_rollouts_can_be_read_in_the_light_and_in_the_dark(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path, dark: bool
) -> None:
    opened(browser, reported, tmp_path, dark=dark)
    browser.execute_script(OPEN_ALL)
    assert browser.execute_script(CONTRAST) == []


def test_the_chart_of_the_evidence_is_read_with_the_keyboard_and_as_a_table(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path
) -> None:
    opened(browser, reported, tmp_path)
    chart = browser.find_element(By.CSS_SELECTOR, "#rollout-3-evidence svg")
    assert "passes below +3.0% and fails above 0" in chart.get_attribute("aria-label")
    assert chart.find_elements(By.CSS_SELECTOR, ".line.passes")
    assert chart.find_elements(By.CSS_SELECTOR, ".line.fails")
    assert chart.find_elements(By.CSS_SELECTOR, ".area")
    browser.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    said = text(browser, "#tip")
    assert "of blocks" in said
    assert "verdict: " in said
    points = report_content(reported)["rollouts"]["cards"][0]["evidence"]["points"]
    browser.find_element(By.CSS_SELECTOR, "#rollout-3-evidence summary").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#rollout-3-evidence tbody tr")) == len(points)


def hostile(reported: pb.GetReportReply) -> pb.GetReportReply:
    """The same, in the words of somebody who means ill."""
    changed = pb.GetReportReply()
    changed.CopyFrom(reported)
    for rollout in changed.rollouts:
        rollout.actor, rollout.why, rollout.reason = HOSTILE, HOSTILE, HOSTILE
        for event in rollout.events:
            event.actor, event.why = HOSTILE, HOSTILE
        for member in rollout.members:
            member.cluster = f"{EVIL}{member.cluster}{LONG}"
        for verdict in rollout.verdicts:
            verdict.reasons[:] = 4 * [HOSTILE]
    changed.rollouts[0].phase = "paused"
    return changed


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_that_an_operator_says_becomes_markup_or_breaks_the_page(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path, width: int
) -> None:
    opened(browser, hostile(reported), tmp_path, width)
    browser.execute_script(OPEN_ALL)
    assert browser.title == "Fleet report · fedl2"
    assert complaints(browser) == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    assert not browser.find_elements(By.TAG_NAME, "img")
    for place in ("-head", "-said", "-stages", "-clusters", "-history"):
        assert EVIL in text(browser, f"#rollout-3{place}")
    assert browser.execute_script(OVERFLOW) <= 0


@contextmanager
def live(content: dict[str, Any]) -> Iterator[str]:
    """The live page on a port of its own, with whatever the content is by then; its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(content) if self.path.endswith("report.json") else live_page()
            self.send_response(200)
            self.send_header("Content-Type", "application/json" if self.path.endswith("json") else "text/html")
            self.end_headers()
            self.wfile.write(data.encode())

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what matters."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_the_live_page_follows_a_rollout_and_leaves_open_what_was_opened(
    browser: WebDriver, reported: pb.GetReportReply
) -> None:
    content = report_content(reported)
    look(browser, 1280)
    with live(content) as address:
        browser.get(address)
        until(browser, "#rollouts h3", "v4 takes turns")
        browser.execute_script(OPEN_ALL)
        browser.execute_script("window.chart = document.querySelector('#rollout-3-evidence svg')")
        later = pb.GetReportReply()
        later.CopyFrom(reported)
        later.rollouts[0].phase = "asking"
        content.update(report_content(later))
        until(browser, "#rollouts h3", "v4 waits for an operator")
        until(browser, "#attention", "rollout 3 of v4 waits for an operator")
        assert browser.find_element(By.ID, "rollout-1-history").is_displayed()
        assert browser.execute_script("return window.chart.isConnected")  # what has not changed is not drawn again
        content["rollouts"] = report_content(report(three()))["rollouts"]
        until(browser, "#rollouts-part", "No rollout yet")
        content["rollouts"] = report_content(reported)["rollouts"]
        until(browser, "#rollouts h3", "v4 takes turns")
        assert browser.find_elements(By.CSS_SELECTOR, "#rollout-3-evidence svg")
    assert not [entry for entry in complaints(browser) if "report.json" not in entry["message"]]


def test_on_paper_ended_rollouts_are_open_and_all_events_there(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path
) -> None:
    opened(browser, reported, tmp_path)
    assert not browser.find_element(By.ID, "rollout-1-history").is_displayed()
    assert browser.print_page()
    assert browser.find_element(By.ID, "rollout-1-history").is_displayed()
    events = report_content(reported)["rollouts"]["cards"][2]["history"]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#rollout-1-history li")) == len(events)
    look(browser, 800, media="print")
    assert browser.execute_script(CONTRAST) == []


def test_evidence_of_which_nothing_is_known_is_a_sentence_and_no_empty_chart(
    browser: WebDriver, reported: pb.GetReportReply, tmp_path: Path
) -> None:
    early = pb.GetReportReply()
    early.CopyFrom(reported)
    del early.rollouts[1:]
    for verdict in early.rollouts[0].verdicts:
        verdict.ClearField("loss_at_least")
        verdict.ClearField("loss_at_most")
    opened(browser, early, tmp_path)
    assert "Nothing is known yet of v4" in text(browser, "#rollouts")
    assert not browser.find_elements(By.CSS_SELECTOR, "#rollouts svg")


def test_without_a_rollout_the_page_says_how_to_begin_one(browser: WebDriver, tmp_path: Path) -> None:
    opened(browser, report(three()), tmp_path)
    assert text(browser, "#rollouts-part") == (
        "No rollout yet.\nBring a version to the clusters in stages: policyctl rollout start latest"
    )
