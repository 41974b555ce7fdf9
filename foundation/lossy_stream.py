"""Stream under a log that never fails: a full disk costs lines of a log, and no process that writes them to stderr."""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO, cast


class _LossyStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if that can be."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if that can be."""
        with suppress(OSError):
            self._stream.flush()


def lossy(stream: TextIO) -> TextIO:
    """A stream to log to, whose lines go to another one as long as they find room."""
    return cast(TextIO, _LossyStream(stream))
