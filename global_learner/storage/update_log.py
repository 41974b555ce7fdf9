"""The update log on disk: what was applied, in the order in which it was applied, with everything to apply it again.

A log is a folder of segments. A segment is a header (magic, format, spec digest, first step, checksum of the last
record of the segment before, checksum of the header) and records, each of which carries the checksum of the one before.
A crash can leave a group of records half written at the end of the last segment, and behind its records any segment may
hold what is left of its file's former life: records of older steps. A reader stops before either; everything else that
cannot be read is an error, since acknowledged updates would be missing.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import structlog

from global_learner.errors import StateUnusable
from global_learner.storage.commits import WAY_OUT
from global_learner.storage.update_records import (
    FORMAT,
    LARGEST_BODY,
    LAYOUTS,
    LONGEST_HEAD_BYTES,
    PREFIXES,
    AppliedUpdate,
    Prefix,
    decode,
)

_log = structlog.get_logger()

MAGIC = b"FEDL2LOG"
_SEGMENT = struct.Struct("<8sI32sQ")  # magic, format, spec digest, first step
_LINK = struct.Struct("<I")  # since format 3: checksum of the record before the first one
_CHECKSUM = struct.Struct("<I")  # since format 3: of all that stands before
_STEP = struct.Struct("<Q")


# Damage in an update log, told from what a crash leaves: the search behind the last record that can be read.
#
# A crash leaves at most a part of the last group of records, in any order of its pages: nobody was told of any of them.
# A file that is written over holds, behind that, records of older steps. Everything else is damage. The search goes to
# the end of the file, byte by byte, as a damaged record does not say how long it is.

_CHUNK_BYTES = 16 << 20
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Later:
    """What was found behind an unreadable place.

    Attributes:
        records: whole ones of steps that come later, or of its own step.
        acknowledged: whether one of them says that the unreadable step was on disk.
        last_step: the highest of them.
    """

    records: int = 0
    acknowledged: bool = False
    last_step: int = 0


def _records_behind(path: Path, end: int, next_step: int, form: int) -> Later:
    """Find what stands in a segment's file behind byte `end`, where the records end and `next_step` would come."""
    if path.stat().st_size <= end:
        return Later()
    with path.open("rb") as stream, closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data:
        return _later(data, end, next_step, form)


def _later(data: mmap.mmap, end: int, next_step: int, form: int) -> Later:
    lead = PREFIXES[form]
    smallest = lead + LAYOUTS[form].size
    highest = next_step + (len(data) - end) // smallest
    records, acknowledged, last_step, behind = 0, False, 0, end
    for at, step in _numbers(data, end + lead, next_step, highest):
        if at - lead < behind:
            continue
        size = _whole_bytes(data, at - lead, form)
        if size is None:
            continue
        prefix = Prefix.parse(data[at - lead : at], form)
        records, last_step, behind = records + 1, max(last_step, step), at - lead + size
        durable = prefix.durable_step if prefix is not None else None
        # The first formats do not say it: whatever comes later was acknowledged as far as anybody knows.
        acknowledged |= form < FORMAT or (durable is not None and durable >= next_step)
    return Later(records, acknowledged, last_step)


def _whole_bytes(data: mmap.mmap, at: int, form: int) -> int | None:
    """How long the whole record at this byte is; None if there is none."""
    lead = PREFIXES[form]
    prefix = Prefix.parse(data[at : at + lead], form)
    if prefix is None or not LAYOUTS[form].size <= prefix.length <= len(data) - at - lead:
        return None
    whole = prefix.fits(data[at + lead : at + lead + prefix.length])
    return lead + prefix.length if whole else None


def _numbers(data: mmap.mmap, begin: int, lowest: int, highest: int) -> Iterator[tuple[int, int]]:
    """Where 64-bit numbers of this range stand, at any byte, in order."""
    for start in range(begin, len(data) - _WORD_BYTES + 1, _CHUNK_BYTES):
        chunk = data[start : start + _CHUNK_BYTES + _WORD_BYTES - 1]
        found: list[tuple[int, int]] = []
        for offset in range(_WORD_BYTES):
            count = (len(chunk) - offset) // _WORD_BYTES
            if count <= 0:
                continue
            words = np.frombuffer(chunk, "<u8", count, offset)
            (places,) = np.nonzero((words >= lowest) & (words <= highest))
            found += [(start + offset + _WORD_BYTES * int(place), int(words[place])) for place in places]
        yield from sorted(found)


class LogDamaged(StateUnusable):
    """Acknowledged updates of a log cannot be read. Exit code 2.

    Attributes:
        path: the segment.
        end: the byte at which what can be read ends.
        last_step: of the last record that can be read, or the step before the segment.
    """

    def __init__(self, what: str, path: Path, end: int, last_step: int) -> None:
        super().__init__(f"{what}; {WAY_OUT}")
        self.what = what
        self.path = path
        self.end = end
        self.last_step = last_step


@dataclass(frozen=True, slots=True)
class _Header:
    form: int
    digest: str
    previous: int | None
    size: int


def segment_name(first_step: int) -> str:
    """File name of the segment whose first record is of this step; names sort by step."""
    return f"updates-{first_step:020d}.log"


def first_step(segment: Path) -> int:
    """The step of a segment's first record, from its file's name."""
    return int(segment.stem.removeprefix("updates-"))


def segments(folder: Path) -> list[Path]:
    """The log's segments, oldest first."""
    return sorted(folder.glob("updates-*.log"))


def segment_header(spec_digest: str, first_step: int, previous: int = 0) -> bytes:
    """The first bytes of a segment; `previous` is the checksum of the record before its first one."""
    data = _SEGMENT.pack(MAGIC, FORMAT, bytes.fromhex(spec_digest), first_step) + _LINK.pack(previous)
    return data + _CHECKSUM.pack(zlib.crc32(data))


def read_log(folder: Path, spec_digest: str) -> Iterator[AppliedUpdate]:
    """All updates of a log in order, up to a torn tail of its last segment.

    Raises:
        StateUnusable: a segment is of another spec, unreadable, or damaged before its end.
    """
    for applied, _ in read_records(folder, spec_digest):
        yield applied


def read_records(folder: Path, spec_digest: str) -> Iterator[tuple[AppliedUpdate, int | None]]:
    """As `read_log`, each with its record's checksum; None in formats that have no chain."""
    files = segments(folder)
    ends = [*(first_step(path) for path in files[1:]), None]
    previous: int | None = None
    for path, end_step in zip(files, ends, strict=False):
        previous = yield from _read_segment(path, spec_digest, end_step, previous)


def _read_segment(
    path: Path, spec_digest: str, end_step: int | None, previous: int | None
) -> Generator[tuple[AppliedUpdate, int | None], None, int | None]:
    """The records of one segment, which has to reach to `end_step` (exclusive); None for the last one.

    `previous` and what it returns are the checksums of the records before and at its end, None where there are none.
    """
    try:
        with path.open("rb") as stream:
            header = _read_header(path, stream, end_step)
            if header is None:
                return None
            if header.digest != spec_digest:
                raise StateUnusable(
                    f"{path}: log of format {header.form} for spec {header.digest[:12]}, this learner serves "
                    f"{spec_digest[:12]}; use another state_dir"
                )
            next_step, end, link = first_step(path), header.size, header.previous
            if None not in (previous, link) and link != previous:
                raise LogDamaged(f"{path}: does not follow the segment before it", path, 0, next_step - 1)
            for prefix, body in _whole_records(stream, header.form):
                applied = decode(body, spec_digest, LAYOUTS[header.form])
                if applied.step < first_step(path):
                    break
                if applied.step != next_step or prefix.previous != link:
                    raise LogDamaged(
                        f"{path}: update {next_step} is missing, the next one is {applied.step}"
                        if applied.step != next_step
                        else f"{path}: update {next_step} is not the one that followed the one before it",
                        path,
                        end,
                        next_step - 1,
                    )
                link = None if link is None else prefix.checksum
                next_step, end = next_step + 1, stream.tell()
                yield applied, link
            if end_step is None:
                _check_tail(path, end, next_step, header.form)
            elif next_step < end_step:
                raise LogDamaged(
                    f"{path}: damaged before its end: update {next_step} cannot be read", path, end, next_step - 1
                )
            return link
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
        if form not in LAYOUTS:
            form = FORMAT
        layout = LAYOUTS[form]
        stream.seek(_header_size(form))
        for step in range(first_step, end_step):
            prefix = Prefix.parse(stream.read(PREFIXES[form]), form)
            length = 0 if prefix is None else prefix.length
            start = stream.tell()
            head = stream.read(min(length, LONGEST_HEAD_BYTES))
            applied = decode(head, "", layout, with_gradient=False) if len(head) >= layout.size else None
            if applied is None or applied.step != step:
                raise StateUnusable(f"{path}: update {step} is missing; {WAY_OUT}")
            stream.seek(start + length)
            yield applied


def _header_size(form: int) -> int:
    return _SEGMENT.size + (_LINK.size + _CHECKSUM.size if form >= FORMAT else 0)


def _read_header(path: Path, stream: BinaryIO, end_step: int | None) -> _Header | None:
    """A segment's header; None where a crash of the file system left none, and no record either.

    Raises:
        LogDamaged: it is damaged, or was lost with updates behind it.
    """
    data = stream.read(_header_size(FORMAT))
    before = first_step(path) - 1
    if len(data) >= _SEGMENT.size and data.startswith(MAGIC):
        _, form, digest, _ = _SEGMENT.unpack_from(data)
        if form in LAYOUTS and form < FORMAT:
            stream.seek(_SEGMENT.size)
            return _Header(form, digest.hex(), None, _SEGMENT.size)
        linked = data[: -_CHECKSUM.size]
        if len(data) == _header_size(FORMAT) and data[-_CHECKSUM.size :] == _CHECKSUM.pack(zlib.crc32(linked)):
            if form > FORMAT:
                raise StateUnusable(f"{path}: log of format {form}, which a newer fedl2 wrote; start that one")
            (previous,) = _LINK.unpack_from(data, _SEGMENT.size)
            return _Header(form, digest.hex(), previous, len(data))
    if end_step is not None:
        raise LogDamaged(f"{path}: damaged before its end: its header cannot be read", path, 0, before)
    if any(data) and not MAGIC.startswith(data[: len(MAGIC)]):
        raise LogDamaged(f"{path}: does not begin as an update log does", path, 0, before)
    if _records_behind(path, 0, before + 1, FORMAT).records:
        raise LogDamaged(f"{path}: its header is damaged, and there are updates behind it", path, 0, before)
    _log.warning("log-segment-empty", file=str(path), advice="a crash can leave one; nothing else should")
    return None


def _whole_records(stream: BinaryIO, form: int) -> Iterator[tuple[Prefix, bytes]]:
    """Records up to the first that is not whole."""
    smallest = LAYOUTS[form].size
    while True:
        prefix = Prefix.parse(stream.read(PREFIXES[form]), form)
        if prefix is None or not smallest <= prefix.length <= LARGEST_BODY:
            return
        body = stream.read(prefix.length)
        if not prefix.fits(body):
            return
        yield prefix, body


def _check_tail(path: Path, end: int, next_step: int, form: int) -> None:
    """Look behind the last record that can be read: nothing, what a crash left, or damage.

    Args:
        end: the byte at which the records end; step `next_step` would come.

    Raises:
        LogDamaged: `next_step` was acknowledged, as far as later records say.
        OSError: it cannot be read.
    """
    # A flipped bit may have made an older format of the newest one, which would then find nothing.
    for looked_for in sorted({form, FORMAT}):
        later = _records_behind(path, end, next_step, looked_for)
        if later.acknowledged or (later.records and looked_for != form):
            raise LogDamaged(
                f"{path}: update {next_step} is damaged and later ones up to {later.last_step} are whole, which were "
                f"acknowledged",
                path,
                end,
                next_step - 1,
            )
    with path.open("rb") as stream:
        stream.seek(end)
        left = stream.read(PREFIXES[form] + _STEP.size)
    step = _STEP.unpack(left[-_STEP.size :])[0] if len(left) == PREFIXES[form] + _STEP.size else next_step
    if any(left) and not 0 < step < first_step(path):
        # In a file that was written over, this may also be the middle of what it held before.
        _log.warning("log-tail-dropped", file=str(path), last_step=next_step - 1, at_byte=end)
