"""The page of the real jobs in a browser: whole at any width and light, in letters that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRAST, OUTSIDE, OVERFLOW, chromium, complaints, look, text
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from deploy.train.page import training_page
from deploy.train.story import Acted, Life, Resize, Said, Speed, Story

BEGAN = 1_795_000_000.0
LEAST_PIXELS = 10.0
TEXT_PIXELS = """
return [...document.querySelectorAll("svg text")].filter((node) => node.getClientRects().length).map((node) => {
  const chart = node.closest("svg");
  const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  return parseFloat(getComputedStyle(node).fontSize) * scale;
});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with chromium() as started:
        yield started


def written(told: Story, folder: Path) -> str:
    (page := folder / "index.html").write_text(training_page(told), encoding="utf-8")
    return page.as_uri()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(story(), tmp_path_factory.mktemp("page"))


def test_names_are_text_and_a_run_without_anything_to_show_has_its_page(browser: WebDriver, tmp_path: Path) -> None:
    evil = "<script>document.title='hacked'</script>"
    bare = Life(
        evil, 2.0, facts={"state": "failed", "modelType": evil, "kind": "ps", "ageSeconds": 3.0, "runSeconds": 0}
    )
    look(browser, 1280, dark=False)
    browser.get(written(Story(BEGAN, 9.0, [bare], [], [], [], 0, [1], 2), tmp_path))
    assert complaints(browser) == []
    assert browser.title == "fedl2: jobs that trained on this machine"
    assert text(browser, "#sizes svg .row") == f"{evil[:17]}…"
    assert text(browser, "#loss .empty") == text(browser, "#beliefs .empty") == "Nothing was seen."
    assert text(browser, "#resizes-empty") == "None."


def story() -> Story:
    """Three jobs of two minutes with five resizes, a suspension among them."""
    lives = [life(0, "gpt-long", "small-gpt", 2.0), life(1, "digits-short", "digits-cnn", 20.0)]
    lives.append(life(2, "tabular-short-with-a-long-name", "tabular-mlp", 40.0))
    sizes = [(3, 1), (1, 1), (2, 1), (0, 0), (2, 1), (4, 2)]
    resizes = [
        Resize("gpt-long", *after, True, BEGAN + at, BEGAN + at + 1.5, 0.0012, 0.9, before)
        for at, before, after in zip((10.0, 20.0, 30.0, 40.0, 50.0), sizes[:-1], sizes[1:], strict=True)
    ]
    speeds = [
        Speed(one.name, one.facts["modelType"], workers, 1, 900.0 * workers, 1500.0)
        for one in lives
        for workers in (1, 2)
    ]
    acted = [Acted(BEGAN + 30.0 * number, number, ()) for number in (1, 2)]
    return Story(BEGAN, 120.0, lives, resizes, acted, speeds, 2, [1, 2], 2)


def life(place: int, name: str, model_type: str, submitted: float) -> Life:
    held = [
        (submitted + 2.0, 0, 0, "starting"),
        (submitted + 8.0, 3, 1, "running"),
        (submitted + 30.0, 1, 1, "running"),
    ]
    said = [Said(submitted + 10.0 * step, 2.0 / step, 0.3 * step) for step in (1, 2, 3)]
    facts = {"state": "done", "modelType": model_type, "kind": "ps", "ageSeconds": 60.0 + place, "runSeconds": 50.0}
    return Life(name, submitted, held, said, facts | {"samples": 4000, "ended": True})


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_real_jobs_is_read_at_any_width_and_light(
    browser: WebDriver, page: str, width: int, dark: bool
) -> None:
    look(browser, width, dark)
    browser.get(page)
    assert complaints(browser) == []
    assert browser.execute_script(OVERFLOW) <= 0
    assert browser.execute_script(CONTRAST) == []
    assert browser.execute_script(OUTSIDE) == []
    assert min(browser.execute_script(TEXT_PIXELS)) >= LEAST_PIXELS
    scrolled = "[...document.querySelectorAll('section *')].filter((part) => part.scrollWidth > part.clientWidth + 1)"
    visible = f"{scrolled}.filter((part) => part.clientWidth && getComputedStyle(part).overflowX !== 'visible')"
    assert browser.execute_script(f"return {visible}.length") == 0
    cells = browser.find_elements(By.CSS_SELECTOR, "tbody td")
    assert cells
    assert all(cell.get_attribute("data-name") for cell in cells)
    lanes = (
        "return [...document.querySelectorAll('svg[aria-label^=Workers]')].filter((chart) => chart.clientWidth).length"
    )
    assert browser.execute_script(lanes) == 1, "either the wide chart or the narrow one"


def test_losses_within_one_power_of_ten_are_a_curve_with_a_height(browser: WebDriver, page: str) -> None:
    look(browser, 1280, dark=False)
    browser.get(page)
    line = browser.find_element(By.CSS_SELECTOR, "#loss svg path.line")
    assert line.size["height"] > 60.0, "from 2.0 to 1.1, smoothed"
