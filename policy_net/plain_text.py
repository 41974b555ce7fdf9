"""Text that came from elsewhere, made safe to show: one line, nothing that a terminal obeys, of bounded length."""

from __future__ import annotations

LONGEST_CHARACTERS = 400
"""A refusal's line. Longer ones hold somebody's input, of which the beginning is enough to find it."""


def plain_line(text: str, longest: int = LONGEST_CHARACTERS) -> str:
    """`text` as one line of at most `longest` characters; what cannot be printed stands as its escape."""
    # Whatever is cut off needs no looking at: a line may come from a message of megabytes.
    head = " ".join(text[: 4 * longest].split())
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in head)
    return shown if len(shown) <= longest and len(text) <= 4 * longest else shown[: longest - 1] + "…"
