"""Page of the fleet: with its data inside the file, or from `report.json` beside it while it is live."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from foundation.files import write_whole
from foundation.page import PAGE_NAME, PageKind
from global_learner.errors import BadLearnerConfig

_FLEET = PageKind(
    "Fleet report · fedl2",
    "fleet report",
    files("global_learner.report") / "template",
    (
        "completion.js",
        "learning.js",
        "load.js",
        "staleness.js",
        "timeline.js",
        "fleet.js",
        "evidence.js",
        "rollouts.js",
        "guard.js",
        "versions.js",
        "events.js",
        "sections.js",
        "live.js",
    ),
    "fleet.css",
    "words.html",
)


def static_page(content: dict[str, Any]) -> str:
    """A page with its content inside."""
    return _FLEET.page(content)


def write_page(content: dict[str, Any], folder: Path) -> Path:
    """Write the page, whole or not at all; returns its path.

    Raises:
        BadConfig: it cannot be written there.
    """
    page = folder / PAGE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(page, static_page(content), durable=False)
    except OSError as error:
        raise BadLearnerConfig(
            f"{page}: cannot be written ({error.strerror}); name another folder with --out"
        ) from error
    return page


def live_page() -> str:
    """A page that asks `report.json` beside it every few seconds."""
    return _FLEET.page(None, connect="'self'")


def live_policy() -> str:
    """Content security policy of the live page for its header, which can say more than the page."""
    return f"{_FLEET.policy(connect=chr(39) + 'self' + chr(39))}; frame-ancestors 'none'"
