"""Text from elsewhere (a script's last words, a file's content), made safe to show or to send: one line, no control
characters, of bounded length.
"""

from __future__ import annotations

LONGEST_CHARACTERS = 400
"""Enough for an error's line; the rest stands in the log."""
LONGEST_ERROR = 1000
"""Of a program that ends with it; paths may be long."""


def plain_line(text: str, longest: int = LONGEST_CHARACTERS) -> str:
    """`text` as one line of at most `longest` characters; what cannot be printed stands as its escape."""
    # What will be cut off needs no looking at.
    head = " ".join(text[: 4 * longest].split())
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in head)
    return shown if len(shown) <= longest and len(text) <= 4 * longest else shown[: longest - 1] + "…"
