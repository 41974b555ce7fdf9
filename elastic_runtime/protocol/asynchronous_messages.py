"""Headers of the data plane's messages in asynchronous training; the others are in `messages`.

An update is known by (incarnation of its worker, sequence), and a part of it by its block: a parameter server applies
each such part once, however often it comes. Each message is about one run of adjacent blocks of one segment.

Payload: `Update`, `Current`: one part, the run of blocks; `Handover`: one part per tensor, the parameters first.
Little-endian throughout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from elastic_runtime.errors import ProtocolError

MOST_MARKS = 2048
"""Workers of one block's table: a header is at most 64 KiB."""


@dataclass(frozen=True, slots=True)
class Update:
    """Worker → PS: the gradient of the worker's own batch; for buffers, its statistics.

    Attributes:
        after: number of the newest change that the worker knew; a PS that does not know it yet lets the message wait.
        incarnation: of the worker's process.
        sequence: counts the worker's updates from 1.
        version: of the blocks that the gradient was computed with.
        samples: computed by this worker since it last sent these statistics; 0 with parameters.
    """

    generation: int
    after: int
    incarnation: int
    sequence: int
    version: int
    samples: int
    first: int
    count: int

    KIND: ClassVar[int] = 16
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IIQQQQII")


@dataclass(frozen=True, slots=True)
class Fetch:
    """Worker → PS: send these blocks as they are. `sequence` comes back with them."""

    generation: int
    after: int
    sequence: int
    first: int
    count: int

    KIND: ClassVar[int] = 17
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IIQII")


@dataclass(frozen=True, slots=True)
class Current:
    """PS → worker: update `sequence` is applied to these blocks, which are now at `version`, or a little later."""

    generation: int
    sequence: int
    version: int
    first: int
    count: int

    KIND: ClassVar[int] = 18
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQQII")


@dataclass(frozen=True, slots=True)
class Moved:
    """PS → worker: these blocks have left with change `change`; update `sequence` is for their new owner."""

    generation: int
    change: int
    sequence: int
    first: int
    count: int

    KIND: ClassVar[int] = 19
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IIQII")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a PS remembers of one worker for one block: its newest update; of statistics, the samples merged by then."""

    incarnation: int
    sequence: int
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Handover:
    """PS → PS: blocks that change their owner, with the optimizer's state and what was applied of whom.

    Every block of the run is at `version` and has these marks; `samples` are those that its statistics hold.
    """

    generation: int
    version: int
    samples: int
    first: int
    count: int
    marks: tuple[Mark, ...]

    KIND: ClassVar[int] = 20
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQQII")


AsynchronousHeader = Update | Fetch | Current | Moved | Handover

_KIND = struct.Struct("<B")
_MARK = struct.Struct("<QQQ")
_FIXED: dict[int, type[Update] | type[Fetch] | type[Current] | type[Moved]] = {
    kind.KIND: kind for kind in (Update, Fetch, Current, Moved)
}
KINDS = frozenset({*_FIXED, Handover.KIND})


def pack_asynchronous(header: AsynchronousHeader) -> bytes:
    """The header's bytes."""
    kind = _KIND.pack(header.KIND)
    match header:
        case Update(generation, after, incarnation, sequence, version, samples, first, count):
            fields = (generation, after, incarnation, sequence, version, samples, first, count)
            return kind + header.FIELDS.pack(*fields)
        case Fetch(generation, after, sequence, first, count):
            return kind + header.FIELDS.pack(generation, after, sequence, first, count)
        case Current(generation, sequence, version, first, count):
            return kind + header.FIELDS.pack(generation, sequence, version, first, count)
        case Moved(generation, change, sequence, first, count):
            return kind + header.FIELDS.pack(generation, change, sequence, first, count)
        case Handover(generation, version, samples, first, count, marks):
            table = b"".join(_MARK.pack(mark.incarnation, mark.sequence, mark.samples) for mark in marks)
            return kind + header.FIELDS.pack(generation, version, samples, first, count) + table


def unpack_asynchronous(data: bytes) -> AsynchronousHeader:
    """The header in these bytes, whose kind is one of `KINDS`.

    Raises:
        ProtocolError: with a run of no blocks, or with too many marks.
        struct.error: too short or too long.
    """
    (kind,) = _KIND.unpack_from(data)
    header: AsynchronousHeader
    if kind in _FIXED:
        fixed = _FIXED[kind]
        header = fixed(*fixed.FIELDS.unpack(data[1:]))
    else:
        size = 1 + Handover.FIELDS.size
        marks = tuple(Mark(*fields) for fields in _MARK.iter_unpack(data[size:]))
        if len(marks) > MOST_MARKS:
            raise ProtocolError(f"blocks with the marks of {len(marks)} workers; at most {MOST_MARKS}")
        generation, version, samples, first, count = Handover.FIELDS.unpack_from(data, 1)
        header = Handover(generation, version, samples, first, count, marks)
    if header.count == 0:
        raise ProtocolError(f"a message of kind {kind} about no blocks")
    return header
