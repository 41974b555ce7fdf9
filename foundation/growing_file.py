"""Lines of a log file that grows, each once, through the moment when it becomes FILE.1 and a new one begins.

Whoever writes such a file keeps one before it; what was written and left between two readings is lost, if it was more.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from foundation.files import open_ordinary

_CHUNK_BYTES = 1 << 20
"""A longer line is told in pieces: what is written may never end its line."""


class GrowingFile:
    """Reads what was written to a file since the reading before; the file need not be there yet.

    It stays open between two readings: one that was begun anew meanwhile is read to its end all the same, and no new
    file can pass for it. At the first reading, `tail` lines of what is there are read; all of them if None.
    """

    def __init__(self, path: Path, tail: int | None = None) -> None:
        self.path = path
        self._tail = tail
        self._stream: BinaryIO | None = None
        self._offset = 0

    def read(self, *, last: bool = True) -> Iterator[bytes]:
        """New lines, each with its end; at the first reading those of the file before as well.

        Args:
            last: take a line that has no end yet as well.

        Raises:
            OSError: it cannot be read.
        """
        lines = self._new_lines(last)
        if self._tail is not None:
            lines = iter(deque(lines, maxlen=self._tail))
            self._tail = None
        yield from lines

    def close(self) -> None:
        """Let go of the file."""
        if self._stream is not None:
            self._stream.close()

    def _new_lines(self, last: bool) -> Iterator[bytes]:
        try:
            now = self.path.stat()
        except FileNotFoundError:  # not yet there, or between its old name and its successor
            return
        reading = None if self._stream is None else os.fstat(self._stream.fileno())
        if self._stream is None or reading is None or not os.path.samestat(now, reading):
            if self._stream is not None:
                yield from self._lines(self._stream, last=True)
            # Opened before the file before it is read, which may take long: a third one may begin meanwhile.
            try:
                found = open(open_ordinary(self.path), "rb")  # noqa: PTH123, SIM115  (it is open already)
            except FileNotFoundError:  # it got its old name just now; the next reading finds its successor
                return
            try:
                yield from self._before(reading, os.fstat(found.fileno()))
            except BaseException:
                found.close()
                raise
            self.close()
            self._stream, self._offset = found, 0
        yield from self._lines(self._stream, last)

    def _before(self, known: os.stat_result | None, now: os.stat_result) -> Iterator[bytes]:
        """The whole file before this one, unless it is the one that was being read, or has become this one."""
        try:
            with open(open_ordinary(self.path.with_name(f"{self.path.name}.1")), "rb") as stream:  # noqa: PTH123
                before = os.fstat(stream.fileno())
                if not any(other is not None and os.path.samestat(before, other) for other in (known, now)):
                    self._offset = 0
                    yield from self._lines(stream, last=True)
        except FileNotFoundError:
            return

    def _lines(self, stream: BinaryIO, last: bool) -> Iterator[bytes]:
        if stream.seek(0, os.SEEK_END) < self._offset:
            self._offset = 0  # it was emptied, and begun anew
        stream.seek(self._offset)
        while line := stream.readline(_CHUNK_BYTES):
            ended = line.endswith(b"\n")
            if not ended and len(line) < _CHUNK_BYTES and not last:
                return
            self._offset += len(line)
            yield line if ended else line + b"\n"
