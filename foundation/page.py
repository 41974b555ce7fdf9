"""Parts of pages that draw themselves: one template, style and scripts for charts and tables, and the content inside.

Nothing else is loaded: the content security policy names the hashes of a page's script and style. What others say never
becomes markup: it is JSON with its `<` escaped, which the script puts into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable  # its place in 3.10

PARTS = files("foundation") / "page_parts"
PAGE_NAME = "index.html"
_SCRIPTS = ("words.js", "elements.js", "chart.js")
"""Of every page, in the order in which they need each other; all scripts share one scope."""
_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src {connect};"
    " base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class PageKind:
    """Pages of one kind.

    Attributes:
        title: the document's.
        brand: a word on what it shows, for its upper edge.
        folder: of its own scripts and style.
        scripts: their names, in order; the last one draws.
        style: name of its own style, after the common one.
        footer: name of the markup that explains the page's words, if there is any.
    """

    title: str
    brand: str
    folder: Traversable
    scripts: Sequence[str]
    style: str
    footer: str = ""

    @cached_property
    def _style(self) -> str:
        return read_part(PARTS / "base.css") + read_part(self.folder / self.style)

    @cached_property
    def _script(self) -> str:
        parts = [*(PARTS / name for name in _SCRIPTS), *(self.folder / name for name in self.scripts)]
        return '"use strict";\n(() => {\n' + "\n".join(map(read_part, parts)) + "})();\n"

    def page(self, content: dict[str, Any] | None, connect: str = "'none'") -> str:
        """The whole page.

        Args:
            content: inlined; None if the script asks for it.
            connect: what the script may ask, as a content security policy has it.
        """
        page = read_part(PARTS / "page.html")
        for mark, text in (
            ("{{policy}}", self.policy(connect)),
            ("{{title}}", escape(self.title)),
            ("{{brand}}", escape(self.brand)),
            ("{{footer}}", read_part(self.folder / self.footer) if self.footer else ""),
            ("{{style}}", self._style),
            ("{{script}}", self._script),
            # last: what it holds is not looked at for marks
            ("{{data}}", "null" if content is None else as_json(content).replace("<", "\\u003c")),
        ):
            page = page.replace(mark, text, 1)
        return page

    def policy(self, connect: str) -> str:
        """The page's content security policy."""
        return _POLICY.format(script=_hash(self._script), style=_hash(self._style), connect=connect)


def as_json(content: dict[str, Any]) -> str:
    """The content in JSON.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_part(part: Traversable) -> str:
    """Text of a page's part."""
    return part.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
