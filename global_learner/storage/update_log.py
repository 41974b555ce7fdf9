"""The update log on disk: what was applied, in the order in which it was applied, with everything to apply it again.

A log is a folder of segments. A segment is a header (magic, spec digest, first step) and records. A crash can leave a
record half written at the end of the last segment, and behind its records any segment may hold what is left of its
file's former life: records of older steps. A reader stops before either. A segment that stops before the next one
begins is an error, since acknowledged updates would be missing; so are whole records of *later* steps behind the last
one that can be read.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import structlog

from foundation.record_tail import find_whole_record
from global_learner.errors import StateUnusable
from global_learner.storage.update_records import (
    FORMAT,
    LARGEST_BODY,
    LAYOUTS,
    LONGEST_NAME_BYTES,
    PREFIX,
    AppliedUpdate,
    decode,
)

_log = structlog.get_logger()

MAGIC = b"FEDL2LOG"
_SEGMENT = struct.Struct("<8sI32sQ")  # magic, format, spec digest, first step
_STEP = struct.Struct("<Q")
_MOST_DAMAGED = 16
"""Records in a row; a bad block of the disk is smaller than that."""


def segment_name(first_step: int) -> str:
    """File name of the segment whose first record is of this step; names sort by step."""
    return f"updates-{first_step:020d}.log"


def first_step(segment: Path) -> int:
    """The step of a segment's first record, from its file's name."""
    return int(segment.stem.removeprefix("updates-"))


def segments(folder: Path) -> list[Path]:
    """The log's segments, oldest first."""
    return sorted(folder.glob("updates-*.log"))


def segment_header(spec_digest: str, first_step: int) -> bytes:
    """The first bytes of a segment."""
    return _SEGMENT.pack(MAGIC, FORMAT, bytes.fromhex(spec_digest), first_step)


def read_log(folder: Path, spec_digest: str) -> Iterator[AppliedUpdate]:
    """All records of a log in order, up to a torn tail of its last segment.

    Raises:
        StateUnusable: a segment is of another spec, unreadable, or damaged before its end.
    """
    files = segments(folder)
    ends = [*(first_step(path) for path in files[1:]), None]
    for path, end_step in zip(files, ends, strict=False):
        yield from read_segment(path, spec_digest, end_step)


def read_segment(path: Path, spec_digest: str, end_step: int | None) -> Iterator[AppliedUpdate]:
    """The whole records of one segment, which has to reach to `end_step` (exclusive); None for the last one.

    Raises:
        StateUnusable: as `read_log`.
    """
    try:
        with path.open("rb") as stream:
            next_step = first_step(path)
            header = stream.read(_SEGMENT.size)
            if len(header) == _SEGMENT.size and header[: len(MAGIC)] == MAGIC:
                _, form, digest, _ = _SEGMENT.unpack(header)
                if form not in LAYOUTS or digest.hex() != spec_digest:
                    raise StateUnusable(
                        f"{path}: log of format {form} for spec {digest.hex()[:12]}, this learner serves "
                        f"{spec_digest[:12]}; use another state_dir"
                    )
                end = stream.tell()
                for applied in _records(stream, spec_digest, LAYOUTS[form]):
                    if applied.step < next_step:
                        break
                    next_step, end = applied.step + 1, stream.tell()
                    yield applied
                if end_step is None:
                    _check_tail(path, end, next_step, LAYOUTS[form])
            elif end_step is None:
                _look_at_head(path, header)
            if end_step is not None and next_step < end_step:
                raise StateUnusable(f"{path}: damaged before its end; restore the state directory from a copy")
    except OSError as error:
        raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error


def read_names(path: Path, first_step: int, end_step: int) -> Iterator[AppliedUpdate]:
    """The updates of a segment that is known to be whole up to `end_step` (exclusive), without gradients or checksums.

    Raises:
        StateUnusable: it does not hold exactly these steps.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        header = stream.read(_SEGMENT.size)
        form = _SEGMENT.unpack(header)[1] if len(header) == _SEGMENT.size else FORMAT
        layout = LAYOUTS.get(form, LAYOUTS[FORMAT])
        for step in range(first_step, end_step):
            prefix = stream.read(PREFIX.size)
            length = PREFIX.unpack(prefix)[0] if len(prefix) == PREFIX.size else 0
            start = stream.tell()
            head = stream.read(min(length, layout.size + LONGEST_NAME_BYTES))
            applied = decode(head, "", layout, with_gradient=False) if len(head) >= layout.size else None
            if applied is None or applied.step != step:
                raise StateUnusable(f"{path}: update {step} is missing; restore the state directory from a copy")
            stream.seek(start + length)
            yield applied


def _records(stream: BinaryIO, spec_digest: str, layout: struct.Struct) -> Iterator[AppliedUpdate]:
    """Records up to the first that is not whole."""
    while True:
        prefix = stream.read(PREFIX.size)
        length, checksum = PREFIX.unpack(prefix) if len(prefix) == PREFIX.size else (0, 0)
        body = stream.read(length) if layout.size <= length <= LARGEST_BODY else b""
        if len(body) < max(length, layout.size) or zlib.crc32(body) != checksum:
            return
        yield decode(body, spec_digest, layout)


def _look_at_head(path: Path, header: bytes) -> None:
    """What begins like no segment: one that a crash left before its first byte, or something else."""
    if any(header) and not MAGIC.startswith(header[: len(MAGIC)]):
        raise StateUnusable(f"{path}: does not begin as an update log does; restore the state directory from a copy")
    _log.warning("log-segment-empty", file=str(path), advice="a crash can leave one; nothing else should")


def _check_tail(path: Path, end: int, next_step: int, layout: struct.Struct) -> None:
    """Look behind the last whole record: nothing, a torn record, older ones, or newer ones.

    Args:
        end: the byte at which the records end; step `next_step` would come.

    Raises:
        StateUnusable: later records are whole.
        OSError: it cannot be read.
    """
    if path.stat().st_size <= end:
        return
    with path.open("rb") as stream, closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data:

        def is_whole(at: int) -> bool:
            start = at + PREFIX.size
            if start > len(data):
                return False
            length, checksum = PREFIX.unpack_from(data, at)
            if not layout.size <= length <= len(data) - start:
                return False
            return zlib.crc32(data[start : start + length]) == int(checksum)

        later = (_STEP.pack(step) for step in range(next_step + 1, next_step + 1 + _MOST_DAMAGED))
        if find_whole_record(data, end, later, is_whole, lead_bytes=PREFIX.size) is not None:
            raise StateUnusable(
                f"{path}: update {next_step} is damaged and later ones are whole, which were acknowledged; restore the "
                f"state directory from a copy (after a power failure, give them up: truncate -s {end} {path.name})"
            )
        prefix = data[end : end + PREFIX.size]
        if any(prefix) and not is_whole(end):
            # In a file that was written over, this may also be the middle of what it held before.
            _log.warning("log-tail-dropped", file=str(path), last_step=next_step - 1, at_byte=end)
