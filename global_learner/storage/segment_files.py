"""Files that the log's segments are written to: one whose segment was cut is written over rather than removed.

Freeing the blocks of a large file keeps the file system busy, and whoever waits for a sync meanwhile waits for that
too. A file that is written over keeps its blocks: a sync then writes data and nothing else. Behind its newest record
stands what is left of its former life: records of older steps, at which a reader stops. For that, files are reused only
within one life of the learner, in which steps only grow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from foundation.files import PRIVATE, sync_folder
from global_learner.storage.update_log import segment_name

SPARES = 2
"""Files kept to be written over; a learner at full load has as many segments more than an idle one."""


class SegmentFiles:
    """The files of one log folder; may be used from several threads."""

    def __init__(self, folder: Path, spares: int = SPARES) -> None:
        """Begin with the segments that are there; spares of an earlier life are removed."""
        self._folder = folder
        self._most_spares = spares
        self._lock = threading.Lock()
        self._named = 0
        self._spares: list[Path] = []
        for path in folder.glob("spare-*.log"):
            path.unlink()
        self._sizes = {path: path.stat().st_size for path in folder.glob("updates-*.log")}

    @property
    def size_bytes(self) -> int:
        """What all files take, spares too."""
        with self._lock:
            return sum(self._sizes.values())

    def open(self, first_step: int, header: bytes, sync: Callable[[int], None]) -> int:
        """A segment's file with its header in it, its name and its header on disk; the descriptor.

        Raises:
            OSError: the disk refused.
        """
        path = self._folder / segment_name(first_step)
        with self._lock:
            spare = self._spares.pop() if self._spares else None
        # Until it has its header, a file must not have the name of a segment.
        blank = spare or self._next_spare()
        descriptor = os.open(blank, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            os.pwrite(descriptor, header, 0)
            sync(descriptor)
            blank.rename(path)
            sync_folder(self._folder)
        except BaseException:
            os.close(descriptor)
            self._forget(blank)
            raise
        with self._lock:
            self._sizes[path] = self._sizes.pop(blank, len(header))
        return descriptor

    def grew(self, first_step: int, size_bytes: int) -> None:
        """Note that a segment was written up to here."""
        path = self._folder / segment_name(first_step)
        with self._lock:
            self._sizes[path] = max(self._sizes.get(path, 0), size_bytes)

    def cut(self, path: Path) -> None:
        """Keep the file of a segment that nobody needs any more as a spare, or remove it.

        Raises:
            OSError: the disk refused.
        """
        with self._lock:
            keep = len(self._spares) < self._most_spares
        if not keep:
            self._forget(path)
            return
        spare = self._next_spare()
        path.rename(spare)
        # Else a power failure could leave the segment's name on a file that was written over meanwhile.
        sync_folder(self._folder)
        with self._lock:
            self._sizes[spare] = self._sizes.pop(path, 0)
            self._spares.append(spare)

    def remove_spares(self) -> None:
        """Give the disk back what is not in use."""
        with self._lock:
            spares, self._spares = self._spares, []
        for path in spares:
            self._forget(path)

    def _forget(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(path, None)

    def _next_spare(self) -> Path:
        with self._lock:
            self._named += 1
            return self._folder / f"spare-{self._named:020d}.log"
