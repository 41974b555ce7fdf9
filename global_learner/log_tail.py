"""What stands behind the last whole record of the newest segment: nothing, a torn record, older ones, or newer ones.

A crash leaves the last record incomplete, and a file that is written over holds older records behind the newest: both
are nothing that anybody was told is safe. Whole records of *later* steps are: then what stands before them was damaged,
and going on would lose acknowledged updates without a word. They are looked for byte by byte, since a damaged record
does not say how long it is.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from contextlib import closing
from pathlib import Path

import structlog

from global_learner.errors import StateUnusable

_log = structlog.get_logger()

_MOST_DAMAGED = 16
"""Records in a row; a bad block of the disk is smaller than that."""
_STEP = struct.Struct("<Q")


def check_tail(path: Path, end: int, next_step: int, record: struct.Struct, layout: struct.Struct) -> None:
    """Warn of a torn record; records end at byte `end`, and step `next_step` would come.

    Args:
        record: what stands before a body: its length and its checksum.
        layout: the body's first bytes, which begin with the step.

    Raises:
        StateUnusable: later records are whole.
        OSError: it cannot be read.
    """
    if path.stat().st_size <= end:
        return
    with path.open("rb") as stream, closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data:
        if _has_later(data, end, next_step, record, layout):
            raise StateUnusable(
                f"{path}: update {next_step} is damaged and later ones are whole, which were acknowledged; restore the "
                f"state directory from a copy (after a power failure, give them up: truncate -s {end} {path.name})"
            )
        prefix = data[end : end + record.size]
        if any(prefix) and not _is_whole(data, end, record, layout):
            # In a file that was written over, this may also be the middle of what it held before.
            _log.warning("log-tail-dropped", file=str(path), last_step=next_step - 1, at_byte=end)


def _has_later(data: mmap.mmap, end: int, next_step: int, record: struct.Struct, layout: struct.Struct) -> bool:
    for step in range(next_step + 1, next_step + 1 + _MOST_DAMAGED):
        name = _STEP.pack(step)
        found = data.find(name, end + record.size)
        while found >= 0:
            if _is_whole(data, found - record.size, record, layout):
                return True
            found = data.find(name, found + 1)
    return False


def _is_whole(data: mmap.mmap, at: int, record: struct.Struct, layout: struct.Struct) -> bool:
    """Whether a whole record begins at this byte."""
    start = at + record.size
    if start > len(data):
        return False
    length, checksum = record.unpack_from(data, at)
    if not layout.size <= length <= len(data) - start:
        return False
    return zlib.crc32(data[start : start + length]) == int(checksum)
