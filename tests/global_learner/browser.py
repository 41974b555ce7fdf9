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

REQUIRED = "FEDL2_BROWSER_REQUIRED"
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
