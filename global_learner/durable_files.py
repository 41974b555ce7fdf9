"""Writing so that it is still there after a crash: what the log, snapshots and receipts have in common."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | memoryview

_BUFFERS_A_WRITE = 512
"""Systems take 1024 at once."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> int:
    """Write buffers one behind the other, however many calls that takes; the offset behind them.

    Raises:
        OSError: the disk refused; any part may have been written.
    """
    os.lseek(descriptor, offset, os.SEEK_SET)
    left = [memoryview(buffer) for buffer in buffers]
    while left:
        written = os.writev(descriptor, left[:_BUFFERS_A_WRITE])
        offset += written
        whole = 0
        while whole < len(left) and written >= len(left[whole]):
            written -= len(left[whole])
            whole += 1
        left = left[whole:]
        if written:
            left[0] = left[0][written:]
    return offset
