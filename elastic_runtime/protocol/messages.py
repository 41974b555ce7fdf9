"""Headers of the data plane's messages: a few bytes in front of the blocks that they carry.

Every message names its generation and what exactly it is about, so that any of them may come twice, late or never:
a push is known by (generation, step, slice, block), a value by (generation, block, version). In asynchronous training
an update is known by (incarnation of its worker, sequence), and a part of it by its block: a parameter server applies
each such part once, however often it comes; those messages are about one run of adjacent blocks of one segment.

A header is its kind, its numbers, and of some kinds a table. Payload: one part per message for `Push`, `Values`,
`Update` and `Current`, the run of blocks; for `State` and `Handover` one part per tensor, the parameters first.
Little-endian throughout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

from elastic_runtime.errors import ProtocolError

Runs = tuple[tuple[int, int], ...]
"""(first block, number of blocks), as often as needed."""

RUN_BYTES = 4 * 1024 * 1024
"""The most that one message carries of a tensor: large enough that a message's own cost does not count, small enough
that the first blocks are applied while the last ones are on their way."""

MOST_RUNS = 4096
MOST_NORMS = 1 << 16
MOST_MARKS = 2048
"""Workers of one block's table: a header is at most 64 KiB."""


@dataclass(frozen=True, slots=True)
class Push:
    """Worker → PS: the gradient of slice `slice` of step `step` for a run of blocks, already times nᵢ/B.

    `after`: number of the newest change that the worker's plan of this step contains; a PS that does not know it yet
    lets the message wait.
    """

    generation: int
    step: int
    slice: int
    after: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Values:
    """PS → worker: what a run of blocks is at `version`."""

    generation: int
    version: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class State:
    """PS → PS: blocks that change their owner, with the optimizer's state. Every block of the run is at `version`."""

    generation: int
    version: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """PS → PS: the run of blocks has arrived; it need not be sent again."""

    generation: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Worker → PS: send these blocks as soon as they are at `version` (or later).

    Also the question after a silence: a PS that lacks the sender's pushes of the step before answers with `Missing`.
    """

    generation: int
    version: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Missing:
    """PS → worker: no push of this slice has come for these blocks; send it again."""

    generation: int
    step: int
    slice: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Norms:
    """PS → PS: squared norms of the summed gradients of the sender's blocks, for clipping by the global norm."""

    generation: int
    step: int
    norms: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Replica → worker: these blocks are at `version` here too; the gradients that led there may be overwritten."""

    generation: int
    version: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Update:
    """Worker → PS: the gradient of the worker's own batch; for buffers, its statistics.

    Attributes:
        after: number of the newest change that the worker knew; a PS that does not know it yet lets the message wait.
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


@dataclass(frozen=True, slots=True)
class Fetch:
    """Worker → PS: send these blocks as they are. `sequence` comes back with them."""

    generation: int
    after: int
    sequence: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Current:
    """PS → worker: update `sequence` is applied to these blocks, which are now at `version`, or a little later."""

    generation: int
    sequence: int
    version: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Moved:
    """PS → worker: these blocks have left with change `change`; update `sequence` is for their new owner."""

    generation: int
    change: int
    sequence: int
    first: int
    count: int


class Mark(NamedTuple):
    """What a PS remembers of one worker for one block: its newest update; of statistics, the samples merged by then."""

    incarnation: int
    sequence: int
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Handover:
    """PS → PS: blocks that change their owner, with the optimizer's state and the updates applied to them.

    Every block of the run is at `version` and has these marks; `samples` are those that its statistics hold.
    """

    generation: int
    version: int
    samples: int
    first: int
    count: int
    marks: tuple[Mark, ...]


Header = (
    Push | Values | State | Adopted | Pull | Missing | Norms | Confirmed | Update | Fetch | Current | Moved | Handover
)
Outgoing = tuple[str, Header]
"""To whom, and what; the blocks that go with it lie in the sender's memory."""


_FORMATS: dict[type[Header], tuple[int, struct.Struct]] = {
    Push: (1, struct.Struct("<IQIQII")),
    Values: (2, struct.Struct("<IQII")),
    State: (3, struct.Struct("<IQII")),
    Adopted: (4, struct.Struct("<III")),
    Pull: (5, struct.Struct("<IQ")),
    Missing: (6, struct.Struct("<IQI")),
    Norms: (7, struct.Struct("<IQ")),
    Confirmed: (8, struct.Struct("<IQ")),
    Update: (16, struct.Struct("<IIQQQQII")),
    Fetch: (17, struct.Struct("<IIQII")),
    Current: (18, struct.Struct("<IQQII")),
    Moved: (19, struct.Struct("<IIQII")),
    Handover: (20, struct.Struct("<IQQII")),
}


class _Table(NamedTuple):
    row: struct.Struct
    make: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    most: int
    what: str


_RUNS = _Table(struct.Struct("<II"), tuple, MOST_RUNS, "runs of blocks")
_TABLES: dict[type[Header], _Table] = {
    Pull: _RUNS,
    Missing: _RUNS,
    Confirmed: _RUNS,
    Norms: _Table(struct.Struct("<Id"), tuple, MOST_NORMS, "norms"),
    Handover: _Table(struct.Struct("<QQQ"), Mark._make, MOST_MARKS, "workers' marks"),
}
_KIND = struct.Struct("<B")
_KINDS = {number: kind for kind, (number, _) in _FORMATS.items()}
_VALUES = {kind: attrgetter(*(field.name for field in fields(kind))) for kind in _KINDS.values()}


def pack(header: Header) -> bytes:
    """The header's bytes."""
    kind = type(header)
    number, form = _FORMATS[kind]
    values = _VALUES[kind](header)
    table = _TABLES.get(kind)
    if table is None:
        return _KIND.pack(number) + form.pack(*values)
    *numbers, rows = values
    return _KIND.pack(number) + form.pack(*numbers) + b"".join(table.row.pack(*row) for row in rows)


def unpack(data: bytes) -> Header:
    """The header in these bytes.

    Raises:
        ProtocolError: of an unknown kind, too short, too long, or with a run of no blocks.
    """
    try:
        (number,) = _KIND.unpack_from(data)
        if number not in _KINDS:
            raise ProtocolError(f"a message of unknown kind {number}")
        kind: Any = _KINDS[number]
        _, form = _FORMATS[kind]
        table = _TABLES.get(kind)
        if table is None:
            header: Header = kind(*form.unpack(data[1:]))
        else:
            rows = tuple(map(table.make, table.row.iter_unpack(data[1 + form.size :])))
            if len(rows) > table.most:
                raise ProtocolError(f"a {kind.__name__} message of {len(rows)} {table.what}; at most {table.most}")
            header = kind(*form.unpack_from(data, 1), rows)
    except struct.error as error:
        raise ProtocolError(f"a message whose header of {len(data)} bytes cannot be read: {error}") from error
    if getattr(header, "count", 1) == 0:
        raise ProtocolError(f"a {kind.__name__} message of no blocks")
    return header


def runs_of(blocks: Sequence[int]) -> Runs:
    """Ascending block numbers as runs."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and block == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return tuple(runs)
