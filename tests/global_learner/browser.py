"""A real Chromium without a window, for what only a browser can tell of a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

REQUIRED = "FEDL2_BROWSER_REQUIRED"
_PATIENCE_SECONDS = 60.0
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """
const boxes = [...document.querySelectorAll("svg")].map((chart) => {
  const box = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text, rect, circle")].filter((mark) => {
    const own = mark.getBoundingClientRect();
    return own.width && (own.left < box.left - 12 || own.right > box.right + 12);
  }).map((mark) => mark.textContent || mark.outerHTML);
});
return boxes.flat();
"""
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const weak = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.getClientRects().length || ["SCRIPT", "OPTION"].includes(node.tagName)) continue;
  const style = getComputedStyle(node);
  const [text, back] = [light(parts(node instanceof SVGElement ? style.fill : style.color)), light(behind(node))];
  const ratio = (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
  if (ratio < 4.5) weak.push(`${node.tagName}.${node.getAttribute("class")} ${ratio.toFixed(2)}`);
}
return weak;
"""
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it shows our own pages only, and does not start as root with one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile; the test is skipped where there is none, unless one is required."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        reason = "no Chromium: install Debian's chromium and chromium-driver, or another chromium and chromedriver"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    options = Options()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Its last processes may still write while the folder is being removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(driver))
        browser.set_page_load_timeout(90)
        browser.set_script_timeout(90)
        try:
            yield browser
        finally:
            browser.quit()


def look(browser: webdriver.Chrome, width: int, dark: bool = False, media: str = "screen") -> None:
    """Show pages so wide, in the light or the dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def complaints(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """What the console says since it was asked last."""
    return list(browser.get_log("browser"))


def text(browser: WebDriver, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def until(browser: WebDriver, selector: str, words: str) -> None:
    """Wait for the page to say something; looked up and read at once, as the page may be drawn anew in between."""
    said = "return document.querySelector(arguments[0])?.innerText ?? ''"
    WebDriverWait(browser, _PATIENCE_SECONDS).until(
        lambda page: words in page.execute_script(said, selector), f"{selector} never said {words!r}"
    )
