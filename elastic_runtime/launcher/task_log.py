"""A task's log file, bounded: at its limit it becomes TASK.log.1 and a new one begins."""

from __future__ import annotations

from pathlib import Path


class TaskLog:
    """Appends bytes; a disk that takes none costs the lines, never the task that writes them.

    Attributes:
        lost_bytes: what could not be written.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._stream = path.open("ab", buffering=0)
        self._size_bytes = self._stream.tell()
        self.lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append a line, or a piece of one."""
        try:
            if self._size_bytes and self._size_bytes + len(data) > self._limit_bytes:
                self._begin_anew()
            written = self._stream.write(data) or 0
        except (OSError, ValueError):  # a full disk, or a new file that could not be opened
            written = 0
        self._size_bytes += written
        self.lost_bytes += len(data) - written

    def close(self) -> None:
        """Nothing more will come."""
        self._stream.close()

    def _begin_anew(self) -> None:
        self._stream.close()
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._stream = self._path.open("ab", buffering=0)
        self._size_bytes = 0
