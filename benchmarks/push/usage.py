"""Usage of a disk: a folder's largest size while others write there."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_PERIOD_SECONDS = 0.05


def folder_bytes(folder: Path) -> int:
    """Blocks taken by all files below, in bytes; what is removed meanwhile does not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += 512 * (Path(path) / name).stat().st_blocks
            except FileNotFoundError:
                continue
    return total


class HighWaterMark:
    """The most that a folder took within the context, looked at twenty times a second."""

    def __init__(self, folder: Path) -> None:
        self.bytes = 0
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="disk", daemon=True)

    def __enter__(self) -> HighWaterMark:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_SECONDS):
            self.bytes = max(self.bytes, folder_bytes(self._folder))
