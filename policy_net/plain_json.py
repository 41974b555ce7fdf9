"""JSON that came from elsewhere: whatever is wrong with it is a ValueError.

Python's own reader ends in a RecursionError over some thousand brackets, which no reader of a file thinks of.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value that a text is.

    Raises:
        ValueError: it is none, or nested beyond all use.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
