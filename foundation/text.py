"""Text that came from elsewhere, made safe: to show on a line, to read as JSON, to be taken for a misspelt name."""

from __future__ import annotations

import difflib
import json
import signal
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

LONGEST_CHARACTERS: Final = 400
"""A refusal's line. Longer ones hold somebody's input, of which the beginning is enough to find it."""
LONGEST_ERROR_CHARACTERS: Final = 1000
"""The line that a program ends with; paths may be long."""


def plain_line(text: str, longest: int = LONGEST_CHARACTERS) -> str:
    """Put text on one line of at most `longest` characters.

    What cannot be printed, and so nothing that a terminal obeys, stands as its escape.
    """
    # What is cut off needs no looking at: a line may come from a message of megabytes.
    head = " ".join(text[: 4 * longest].split())
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in head)
    return shown if len(shown) <= longest and len(text) <= 4 * longest else shown[: longest - 1] + "…"


def parse_json(text: str | bytes) -> Any:
    """Read JSON; whatever is wrong with it is a ValueError.

    Python's own reader ends in a RecursionError over some thousand brackets, which no reader of a file thinks of.

    Raises:
        ValueError: the text is no JSON, or nested beyond all use.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


_CHECKSUM: Final = "checksum"


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a CRC-32 of what is in it: a digit that was flipped on a disk is still a number."""
    return {**content, _CHECKSUM: zlib.crc32(json.dumps(content, sort_keys=True).encode())}


def without_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """What `with_checksum` was given; an object without one, as an earlier version wrote it, as it is.

    Raises:
        ValueError: it is not what was written.
    """
    if not isinstance(content, Mapping):
        raise ValueError("holds no JSON object")  # noqa: TRY004  (it was read from a file)
    rest = {name: value for name, value in content.items() if name != _CHECKSUM}
    if _CHECKSUM in content and with_checksum(rest)[_CHECKSUM] != content[_CHECKSUM]:
        raise ValueError("damaged: its checksum is another")
    return rest


def nearest(word: str, known: Iterable[str], least_likeness: float = 0.6) -> str | None:
    """The known word that somebody probably meant; None if none is like it.

    Args:
        least_likeness: from 0, nothing in common, to 1, the same.
    """
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=least_likeness)), None)


def describe_end(exit_code: int) -> str:
    """How a process ended, for people, as far as its code tells."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was ended by {name}"
