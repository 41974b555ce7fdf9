"""The page in a real browser: it draws every fleet, at any width and light, and nothing that a cluster says runs."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRAST, OUTSIDE, OVERFLOW, chromium, complaints, look, text
from report_makers import EVIL, fleets, report, view
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select

from global_learner.report.content import report_content
from global_learner.report.page import static_page
from policy_net.exchange.generated import fleet_pb2 as pb


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every fleet's page as a file; name to address."""
    folder = tmp_path_factory.mktemp("pages")
    addresses = {}
    for name, arguments in fleets().items():
        page = folder / f"{name}.html"
        page.write_text(static_page(report_content(*arguments)), encoding="utf-8")
        addresses[name] = page.as_uri()
    return addresses


def opened(browser: WebDriver, address: str, width: int = 1400, dark: bool = False) -> WebDriver:
    look(browser, width, dark)
    browser.get(address)
    return browser


@pytest.mark.heavy
@pytest.mark.parametrize("name", fleets())
@pytest.mark.parametrize("width", [1400, 390])
def test_every_fleet_is_drawn_at_any_width_without_a_complaint(
    browser: WebDriver, pages: dict[str, str], name: str, width: int
) -> None:
    opened(browser, pages[name], width)
    assert complaints(browser) == []
    assert text(browser, "h1") == report_content(*fleets()[name])["headline"]["text"]
    assert browser.title == "Fleet report · fedl2"
    assert browser.execute_script(OVERFLOW) <= 0
    assert browser.execute_script(OUTSIDE) == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    sections = [part for part in browser.find_elements(By.TAG_NAME, "section") if part.is_displayed()]
    assert len(sections) >= 9
    assert not [part for part in sections if not part.text.strip()]


def test_a_curve_of_one_version_is_a_sentence(browser: WebDriver, tmp_path: Path) -> None:
    (page := tmp_path / "one.html").write_text(static_page(report_content(report([], versions=1, scores=True))))
    opened(browser, page.as_uri())
    assert "of the time of DRF; a curve needs another version’s score" in text(browser, "#learning")
    assert browser.find_element(By.CSS_SELECTOR, "#versions-rows td:nth-of-type(4)").text == "1.064"


def test_a_version_with_an_alias_is_shown_before_anybody_asks_for_the_older_ones(
    browser: WebDriver, tmp_path: Path
) -> None:
    said = report([], versions=40)
    next(card for card in said.versions if card.version == 4).aliases.append("steady")
    (page := tmp_path / "called.html").write_text(static_page(report_content(said)))
    opened(browser, page.as_uri())
    names = [node.text for node in browser.find_elements(By.CSS_SELECTOR, "#versions-rows th")]
    assert [name.split()[0] for name in names] == [*(f"v{number}" for number in range(40, 30, -1)), "v4"]
    assert names[-1].split() == ["v4", "steady"]
    assert "29 more versions" in text(browser, "#versions-more")


def test_what_did_not_happen_is_not_enumerated(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["one"])
    assert "None: all " in text(browser, "#guard-part .empty")
    assert not browser.find_elements(By.CSS_SELECTOR, "#guard dt")
    rare = {"Rejected", "Guard"}
    assert not rare & set(text(browser, "#fleet-head").split())
    assert "Guard interventions" not in text(browser, "#tiles")
    opened(browser, pages["live"])
    assert rare < set(text(browser, "#fleet-head").split())
    assert "Guard interventions" in text(browser, "#tiles")


def test_staleness_and_what_the_guard_did_stand_at_the_end(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["live"])
    parts = [part.get_attribute("id") for part in browser.find_elements(By.CSS_SELECTOR, "#parts section")]
    assert parts[0] == "fleet"
    assert parts[-2:] == ["guard", "staleness"]


def test_on_a_telephone_every_figure_has_its_heading_and_nothing_is_scrolled(
    browser: WebDriver, pages: dict[str, str]
) -> None:
    opened(browser, pages["live"], 390)
    too_wide = "node.clientWidth && node.scrollWidth > node.clientWidth && !node.closest('details')"
    wide = f"return [...document.querySelectorAll('.wide')].filter((node) => {too_wide}).length"
    assert browser.execute_script(wide) == 0
    headings = [node.get_attribute("textContent") for node in browser.find_elements(By.CSS_SELECTOR, "#fleet-head th")]
    names = "(row) => [...row.children].map((cell) => cell.dataset.name ?? '')"
    rows = browser.execute_script(f"return [...document.querySelectorAll('#fleet-rows tr')].map({names})")
    assert rows == [["", *headings[1:]]] * 3
    assert browser.execute_script("return getComputedStyle(document.querySelector('#fleet-rows tr')).display") == "grid"
    versions = browser.execute_script(f"return [...document.querySelectorAll('#versions-rows tr')].map({names})")
    assert versions
    assert all(all(row[1:]) for row in versions)


def test_finished_clusters_are_said_to_have_finished_and_not_to_be_in_touch(browser: WebDriver, tmp_path: Path) -> None:
    draw = random.Random(4)
    done = [view("done", draw, finished=True), view("over", draw, finished=True)]
    for views, says in (([*done, view("here", draw)], "1 in touch, 2 finished"), (done, "2 finished")):
        (page := tmp_path / "finished.html").write_text(static_page(report_content(report(views))))
        assert text(opened(browser, page.as_uri()), "#tiles div").endswith(says)


def job(number: int, resizes: int, workers: int, ps: int = 1) -> pb.JobTimeline:
    held = [pb.JobTimeline.Held(seconds=60.0 * at, workers=workers + at % 2, ps=ps) for at in range(resizes + 1)]
    return pb.JobTimeline(number=number, job_type="vgg-16", held=held, resizes=resizes, seconds=6000.0)


def test_the_job_shown_first_is_a_usual_one_and_many_parameter_servers_are_explained(
    browser: WebDriver, tmp_path: Path
) -> None:
    jobs = [job(1, 23, 0, ps=14), job(2, 1, 4), job(3, 12, 4), job(4, 5, 3), job(5, 4, 2)]
    views = [view("north", random.Random(4), job_timelines=jobs)]
    (page := tmp_path / "jobs.html").write_text(static_page(report_content(report(views))))
    opened(browser, page.as_uri())
    assert text(browser, "#job-part-finding").startswith("Job 4 ")
    assert "outnumber" not in text(browser, "#job-part-note")
    Select(browser.find_element(By.ID, "job-select")).select_by_value("north/job 1")
    assert "Parameter servers may outnumber workers" in text(browser, "#job-part-note")


@pytest.mark.heavy
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["demo", "strange", "empty"])
def test_all_text_can_be_read_in_the_light_and_in_the_dark(
    browser: WebDriver, pages: dict[str, str], name: str, dark: bool
) -> None:
    opened(browser, pages[name], dark=dark)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(paper.removeprefix("rgb(").partition(",")[0]) < 60) is dark
    assert browser.execute_script(CONTRAST) == []


def test_nothing_that_a_cluster_says_becomes_markup(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["strange"])
    assert browser.title == "Fleet report · fedl2"
    assert EVIL in text(browser, "#fleet")
    assert EVIL in text(browser, "#job")
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2


def test_no_other_script_runs_and_nothing_is_asked_of_anybody(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["demo"])
    browser.execute_script(
        "const added = document.createElement('script');"
        "added.textContent = 'window.ran = 1'; document.body.append(added);"
        "document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.ran = 1\">x</p>');"
        "document.body.lastElementChild.click();"
    )
    assert browser.execute_script("return window.ran") is None
    asked = "fetch('http://127.0.0.1:1/').then(() => 'answered', (error) => 'refused')"
    assert browser.execute_async_script(f"{asked}.then(arguments[0])") == "refused"
    assert any("connect-src" in entry["message"] for entry in complaints(browser))


def test_another_job_can_be_chosen(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["live"])
    choice = Select(browser.find_element(By.ID, "job-select"))
    before = text(browser, "#job-part-finding")
    chart = browser.find_element(By.CSS_SELECTOR, "#job svg")
    choice.select_by_value("vision/job 3")
    assert text(browser, "#job-part-finding") != before
    assert "(resnet-50, vision)" in text(browser, "#job-part-finding")
    assert "the guard stepped in once" in text(browser, "#job-part-finding")
    assert browser.find_elements(By.CSS_SELECTOR, "#job svg path.guard")
    assert browser.find_element(By.CSS_SELECTOR, "#job svg") != chart


def test_charts_can_be_read_with_the_keyboard_alone(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["demo"])
    chart = browser.find_element(By.CSS_SELECTOR, "#learning svg")
    assert "v1 " in chart.get_attribute("aria-label")
    browser.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_RIGHT)
    assert text(browser, "#tip").startswith("v1, step 0")
    chart.send_keys(Keys.ARROW_RIGHT)
    assert text(browser, "#tip").startswith("v6, step 125")
    assert "v6, step 125" in browser.find_element(By.ID, "spoken").get_attribute("textContent")
    chart.send_keys(Keys.ESCAPE)
    assert not browser.find_element(By.ID, "tip").is_displayed()


def test_a_chart_says_the_same_in_a_table(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["demo"])
    section = browser.find_element(By.ID, "completion")
    section.find_element(By.TAG_NAME, "summary").click()
    content = report_content(*fleets()["demo"])["completion"]
    rows = section.find_elements(By.CSS_SELECTOR, "tbody tr")
    assert [row.find_element(By.TAG_NAME, "th").text for row in rows] == [row["cluster"] for row in content["rows"]]
    assert section.find_elements(By.CSS_SELECTOR, "thead th")[1].text == "DRF"
    hours = content["rows"][0]["seconds"]["drf"] / 3600
    assert rows[0].find_element(By.TAG_NAME, "td").text == f"{hours:.1f}".removesuffix(".0") + " h"


def test_utilisation_and_waiting_are_drawn_over_time_a_line_a_policy(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["demo"])
    load = report_content(*fleets()["demo"])["load"]["scopes"][0]
    for part, finding in (("use", "use_finding"), ("waits", "waiting_finding")):
        assert text(browser, f"#{part}-part-finding") == load[finding]
        assert len(browser.find_elements(By.CSS_SELECTOR, f"#{part} svg path.line")) == 2
        assert len(browser.find_elements(By.CSS_SELECTOR, f"#{part}-part-figures tbody tr")) == 100
    assert "Waiting" in text(browser, "#contents").split()


def test_the_load_of_one_cluster_is_chosen(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["live"])
    scopes = {scope["name"]: scope for scope in report_content(*fleets()["live"])["load"]["scopes"]}
    choice = Select(browser.find_element(By.ID, "load-select"))
    assert (
        [option.text for option in choice.options] == list(scopes) == ["all 3 clusters", "language", "mixed", "vision"]
    )
    assert text(browser, "#use-part-legend").split("\n") == [
        "FIFO with EASY backfill",
        "DRF, the fallback",
        "as it ran",
    ]
    choice.select_by_value("mixed")
    assert text(browser, "#waits-part-finding") == scopes["mixed"]["waiting_finding"]
    lines = browser.find_elements(By.CSS_SELECTOR, "#waits svg path.line")
    assert [line.get_attribute("d").count("M") for line in lines] == [2, 2, 2], "nothing is known of one step"


def test_real_clusters_have_the_time_of_day_and_what_is_not_known_is_said(
    browser: WebDriver, pages: dict[str, str]
) -> None:
    opened(browser, pages["real"])
    assert "Other schedulers are shown where replays of every cluster are believed" in text(browser, "#use-part-note")
    assert "Not reported by older" in text(browser, "#use-part-note")
    ticks = [node.text for node in browser.find_elements(By.CSS_SELECTOR, "#use svg text.tick")]
    assert {"12:00", "11-21"} <= set(ticks)
    Select(browser.find_element(By.ID, "load-select")).select_by_value("south")
    assert "Not reported by" not in text(browser, "#use-part-note")


def test_without_any_load_there_is_no_part_for_it(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["empty"])
    assert not browser.find_element(By.ID, "load").is_displayed()
    assert "Waiting" not in text(browser, "#contents").split()


def test_events_are_chosen_by_their_days(browser: WebDriver, pages: dict[str, str]) -> None:
    opened(browser, pages["many"])
    assert text(browser, "#events-finding") == "1 alert and 180 events, 2026-11-21 to 2026-11-21."
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events-list li")) == 12
    choose = "const node = document.getElementById(arguments[0]); node.value = arguments[1]; node.onchange();"
    browser.execute_script(choose, "events-to", "2026-11-20")
    assert text(browser, "#events-finding") == "0 alerts and 0 events, 2026-11-21 to 2026-11-20."
    assert not browser.find_elements(By.CSS_SELECTOR, "#events-list li")
    browser.execute_script(choose, "events-to", "2026-11-21")
    browser.find_element(By.ID, "events-more").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events-list li")) == 181


def test_of_many_clusters_those_in_need_come_first_and_the_rest_on_demand(
    browser: WebDriver, pages: dict[str, str]
) -> None:
    opened(browser, pages["many"])
    rows = browser.find_elements(By.CSS_SELECTOR, "#fleet-rows tr")
    assert len(rows) == 16
    assert rows[0].text.startswith("cluster-17")
    browser.find_element(By.ID, "fleet-more").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#fleet-rows tr")) == 64
    assert not browser.find_element(By.ID, "fleet-more").is_displayed()


def test_on_paper_everything_is_there(browser: WebDriver, pages: dict[str, str], tmp_path: Path) -> None:
    opened(browser, pages["many"], dark=True)
    assert browser.print_page()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#fleet-rows tr")) == 64
    look(browser, 1000, dark=True, media="print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.execute_script(CONTRAST) == []
    assert not browser.find_element(By.ID, "contents").is_displayed()


def test_a_real_cluster_has_lines_of_other_schedulers_and_the_page_says_that_they_are_simulated(
    browser: WebDriver, pages: dict[str, str]
) -> None:
    opened(browser, pages["real"])
    assert text(browser, "h1").startswith("Simulated from their own records, jobs take 43% less time than under FIFO")
    choice = Select(browser.find_element(By.ID, "load-select"))
    assert not browser.find_element(By.ID, "load-times").is_displayed(), "not every cluster was replayed"
    choice.select_by_value("north")
    assert text(browser, "#load-times").startswith("Average completion time: 5 h (as it ran), 5.2 h (as it ran, sim")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#use-part-chart path.line")) == 4
    assert len(browser.find_elements(By.CSS_SELECTOR, "#use-part-chart path.p-own.again")) == 1, "told from grey lines"
    legend = text(browser, "#waits-part-legend")
    assert "FIFO with EASY backfill, simulated" in legend
    assert "DRF, the fallback, simulated" in legend
    assert "take 4% more time there than they took" in text(browser, "#use-part-note")
    Select(browser.find_element(By.ID, "load-select")).select_by_value("south")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#use-part-chart path.line")) == 1
    assert "take 60% more time than they took" in text(browser, "#use-part-note")
