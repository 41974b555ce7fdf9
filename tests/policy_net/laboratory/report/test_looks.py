"""Pages of replays and of training runs as a browser shows them: at any width, in the light and in the dark."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CONTRAST, OVERFLOW, chromium, complaints, look
from matplotlib.figure import Figure
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.laboratory.report.chart_style import DARK
from policy_net.laboratory.report.chart_style import look as style
from policy_net.laboratory.report.charts import charts_of, in_lines
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.page import CHART_INCHES, page_html
from policy_net.laboratory.report.policies import describe
from policy_net.laboratory.report.runs_page import runs_page
from policy_net.laboratory.training_runs import Curve, TrainingRun

HOURS = {"fifo-easy": [11.0, 13.0], "drf": [9.0, 8.0], "srtf": [8.0, 9.0], "tetris": [7.0, 9.0], "las": [7.0, 8.0],
         "optimus": [6.0, 8.0], "set-taught": [2.0, 4.0]}  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with chromium() as started:
        yield started


def written(folder: Path, html: str) -> str:
    (page := folder / "page.html").write_text(html, encoding="utf-8")
    return page.as_uri()


def runs() -> list[TrainingRun]:
    curve = Curve("jobs' mean JCT [h]", tuple((step, 5.0 - 0.1 * step) for step in range(9)))
    return [
        TrainingRun(name, {"steps": 9, "seed": seed}, {"jct": 4.2}, (curve,))
        for seed, name in enumerate(("first", "second"))
    ]


@pytest.mark.heavy
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_replays_page_is_read_at_any_width_in_the_light_and_the_dark_with_its_charts(
    browser: WebDriver, made: Callable[..., Comparison], tmp_path: Path, width: int, dark: bool
) -> None:
    look(browser, width, dark)
    browser.get(written(tmp_path, page_html([made(HOURS)])))
    assert complaints(browser) == []
    assert browser.execute_script(OVERFLOW) <= 0
    assert browser.execute_script(CONTRAST) == []
    _are_readable(browser, 3, dark)
    if width == 390:
        _has_its_headings(browser)


@pytest.mark.heavy
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_of_training_runs_is_read_in_the_light_and_the_dark(
    browser: WebDriver, tmp_path: Path, dark: bool
) -> None:
    look(browser, 390, dark)
    browser.get(written(tmp_path, runs_page(runs())))
    assert browser.execute_script(OVERFLOW) <= 0
    assert browser.execute_script(CONTRAST) == []
    _are_readable(browser, 1, dark)
    _has_its_headings(browser)


@pytest.mark.heavy
@pytest.mark.parametrize("figures", [3, 9, 20])
def test_a_table_of_training_runs_stays_in_its_box_on_a_screen(
    browser: WebDriver, tmp_path: Path, figures: int
) -> None:
    look(browser, 1280)
    final = {f"figure_{place}": "2f" * 32 if place == 1 else 4.25 for place in range(figures)}
    browser.get(written(tmp_path, runs_page([replace(run, final={**final, "own": run.name}) for run in runs()])))
    assert browser.execute_script(OVERFLOW) <= 0
    boxes = "[...document.querySelectorAll('.wide')]"
    assert browser.execute_script(f"return {boxes}.length") == 2
    assert browser.execute_script(f"return {boxes}.every((part) => part.scrollWidth <= part.clientWidth)")


def _has_its_headings(browser: WebDriver) -> None:
    """On a telephone each figure stands below its heading, and no table is scrolled."""
    cells = browser.find_elements(By.CSS_SELECTOR, "tbody td")
    assert cells
    assert all(cell.get_attribute("data-name") for cell in cells)
    scrolled = "[...document.querySelectorAll('.wide')].filter((part) => part.scrollWidth > part.clientWidth)"
    assert browser.execute_script(f"return {scrolled}.length") == 0


def _are_readable(browser: WebDriver, charts: int, dark: bool) -> None:
    pictures = browser.find_elements(By.TAG_NAME, "img")
    assert len(pictures) >= charts
    for picture in pictures:
        grey = np.asarray(Image.open(io.BytesIO(picture.screenshot_as_png)).convert("L"))
        darker, lighter = float((grey < 70).mean()), float((grey > 150).mean())
        assert (darker > 0.5) is dark, "the paper of a chart is that of the page"
        assert (lighter > 0.5) is not dark
        assert min(darker, lighter) > 0.0005, "something is written on it"


def test_figures_of_runs_have_their_unit_and_large_ones_can_be_read() -> None:
    page = runs_page([replace(run, final={"avg_jct_seconds": 15000.25, "score": 15000.25}) for run in runs()])
    assert "avg JCT [h]" in page
    assert ">4.2</td>" in page
    assert "15,000.2" in page


def test_what_all_runs_share_is_no_column_and_what_is_not_set_one_sentence() -> None:
    settings = {"max_seconds": 20.0, "imitate": None, "world.nodes": ""}
    finals = {"seconds": 4.5, "validation_change": -0.007, "spec.policy": "set", "spec.bound": 1.5}
    page = runs_page(
        [
            replace(run, settings=run.settings | settings, final=finals | {"spec.bound": 1.5 + place})
            for place, run in enumerate(runs())
        ]
    )
    columns = re.findall(r'<th scope="col">(.*?)</th>', page)
    assert "policy: bound" in columns
    assert "took [s]" in columns
    assert "kind of policy" not in columns
    assert "<dt>kind of policy</dt><dd>set</dd>" in page
    assert "<dt>time limit</dt><dd>20 s</dd>" in page
    assert "Not set: imitated, simulation: nodes." in page
    assert ">−0.7%</td>" in page


def test_a_version_of_the_fleet_is_no_scheduler_of_the_users() -> None:
    assert describe("v11").startswith("the version of the fleet’s policy")
    assert describe("van.safetensors") == "a scheduler given by the user."


def test_every_colour_of_a_chart_has_one_for_the_dark(made: Callable[..., Comparison]) -> None:
    text = page_html([made(HOURS)])
    for encoded in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", text):
        svg = base64.b64decode(encoded).decode()
        used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg.partition("</style>")[2]))
        assert used
        assert used <= set(DARK)
        assert "prefers-color-scheme:dark" in svg.partition("</style>")[0]


def test_titles_of_charts_fit_beside_long_names(made: Callable[..., Comparison]) -> None:
    comparison: Any = made(HOURS)
    with style():
        for chart in charts_of(comparison):
            figure = Figure(figsize=CHART_INCHES, layout="constrained")
            axes = figure.add_subplot()
            chart.draw(axes)
            figure.canvas.draw()
            (title,) = [
                text for text in axes.get_children() if getattr(text, "get_text", str)() == axes.get_title("left")
            ]
            assert title.get_window_extent().x1 <= figure.bbox.x1, chart.key


def test_a_number_and_its_unit_are_on_one_line() -> None:
    assert in_lines("done in 9.2 h", 12).replace("\N{NO-BREAK SPACE}", " ") == "done in\n9.2 h"
