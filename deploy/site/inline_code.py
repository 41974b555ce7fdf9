"""Inline code of a built page that is short: the style keeps it on one line, as `--` and `watch` on two are no option.

Browsers break a line behind every hyphen and blank, also in code, and no style sheet knows how long a text is. Code
that is long, such as a path, must be broken, or a phone would have to scroll its page sideways.
"""

from __future__ import annotations

import html
import re

_CODE = re.compile(r"<code>([^<]*)</code>")
"""Blocks of code hold tags, or stand on lines of their own that are never broken."""
_BREAKABLE = re.compile(r"[\s\-]")
_MOST_LETTERS = 24
"""So many always find room in a line of 390 pixels, which holds some forty of them."""


def with_whole_code(page: str) -> str:
    """The page, in which short inline code that a browser would break has `data-short`.

    Args:
        page: HTML, as the generator writes it.
    """
    return _CODE.sub(_marked, page)


def _marked(code: re.Match[str]) -> str:
    text = html.unescape(code[1])
    short = len(text) <= _MOST_LETTERS and _BREAKABLE.search(text) is not None
    return f"<code data-short>{code[1]}</code>" if short else code[0]
