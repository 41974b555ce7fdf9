"""Page of the report: one template, with its data inside the file, or from `report.json` beside it while it is live.

Nothing else is loaded: the content security policy names the hashes of the page's script and style. What clusters say
never becomes markup: it is JSON with its `<` escaped, which the script puts into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from foundation.files import write_whole
from global_learner.errors import BadLearnerConfig

PAGE_NAME = "index.html"
_PARTS = files("global_learner.report") / "template"
_SCRIPTS = (
    "words.js",
    "elements.js",
    "chart.js",
    "completion.js",
    "learning.js",
    "lessons.js",
    "load.js",
    "staleness.js",
    "timeline.js",
    "fleet.js",
    "acting.js",
    "evidence.js",
    "rollouts.js",
    "interventions.js",
    "versions.js",
    "events.js",
    "sections.js",
    "live.js",
)
"""In the order in which they need each other; they share one scope."""

_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src {connect};"
    " base-uri 'none'; form-action 'none'"
)


def static_page(content: dict[str, Any]) -> str:
    """A page with its content inside."""
    return _page(content, connect="'none'")


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
    return _page(None, connect="'self'")


def live_policy() -> str:
    """Content security policy of the live page for its header, which can say more than the page."""
    return f"{_content_policy(chr(39) + 'self' + chr(39))}; frame-ancestors 'none'"


def as_json(content: dict[str, Any]) -> str:
    """The content in JSON.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@cache
def _style() -> str:
    return (_PARTS / "page.css").read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = [(_PARTS / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _page(content: dict[str, Any] | None, connect: str) -> str:
    data = "null" if content is None else as_json(content).replace("<", "\\u003c")
    page = (_PARTS / "page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("{{policy}}", _content_policy(connect)),
        ("{{style}}", _style()),
        ("{{script}}", _script()),
        ("{{data}}", data),  # last: what it holds is not looked at for marks
    ):
        page = page.replace(mark, text, 1)
    return page


def _content_policy(connect: str) -> str:
    return _POLICY.format(script=_hash(_script()), style=_hash(_style()), connect=connect)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
