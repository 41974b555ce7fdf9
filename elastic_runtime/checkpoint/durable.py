"""Files that outlast a power cut: written, flushed, and given their name last."""

from __future__ import annotations

import os
from pathlib import Path

PARTIAL = ".partial"
"""What the name of a file that is not finished ends with."""


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: it cannot be.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durable.

    Raises:
        OSError: it cannot be.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)


def write_at(descriptor: int, numbers: memoryview, start: int) -> int:
    """Write all bytes at this place of a file; returns where they end.

    Raises:
        OSError: they cannot be written.
    """
    while numbers:
        written = os.pwrite(descriptor, numbers, start)
        numbers, start = numbers[written:], start + written
    return start


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place as a whole or not at all.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_at(descriptor, memoryview(content), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
        flush_folder(path.parent)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
