"""Headers of the data plane's messages: a few bytes in front of the blocks that they carry.

Every message names its generation and what exactly it is about, so that any of them may come twice, late or never:
a push is known by (generation, step, slice, block), a value by (generation, block, version).

Payload: one part per message for `Push` and `Values`, the run of blocks; for `State` one part per tensor, the
parameters first. Little-endian throughout.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.asynchronous_messages import (
    KINDS,
    AsynchronousHeader,
    pack_asynchronous,
    unpack_asynchronous,
)

Runs = tuple[tuple[int, int], ...]
"""(first block, number of blocks), as often as needed."""

RUN_BYTES = 4 * 1024 * 1024
"""The most that one message carries of a tensor: large enough that a message's own cost does not count, small enough
that the first blocks are applied while the last ones are on their way."""

_KIND = struct.Struct("<B")
_RUN = struct.Struct("<II")
MOST_RUNS = 4096
MOST_NORMS = 1 << 16


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

    KIND: ClassVar[int] = 1
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQIQII")


@dataclass(frozen=True, slots=True)
class Values:
    """PS → worker: what a run of blocks is at `version`."""

    generation: int
    version: int
    first: int
    count: int

    KIND: ClassVar[int] = 2
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQII")


@dataclass(frozen=True, slots=True)
class State:
    """PS → PS: blocks that change their owner, with the optimizer's state. Every block of the run is at `version`."""

    generation: int
    version: int
    first: int
    count: int

    KIND: ClassVar[int] = 3
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQII")


@dataclass(frozen=True, slots=True)
class Adopted:
    """PS → PS: the run of blocks has arrived; it need not be sent again."""

    generation: int
    first: int
    count: int

    KIND: ClassVar[int] = 4
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Pull:
    """Worker → PS: send these blocks as soon as they are at `version` (or later).

    Also the question after a silence: a PS that lacks the sender's pushes of the step before answers with `Missing`.
    """

    generation: int
    version: int
    runs: Runs

    KIND: ClassVar[int] = 5
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQ")


@dataclass(frozen=True, slots=True)
class Missing:
    """PS → worker: no push of this slice has come for these blocks; send it again."""

    generation: int
    step: int
    slice: int
    runs: Runs

    KIND: ClassVar[int] = 6
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQI")


@dataclass(frozen=True, slots=True)
class Norms:
    """PS → PS: squared norms of the summed gradients of the sender's blocks, for clipping by the global norm."""

    generation: int
    step: int
    norms: tuple[tuple[int, float], ...]

    KIND: ClassVar[int] = 7
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQ")


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Replica → worker: these blocks are at `version` here too; the gradients that led there may be overwritten."""

    generation: int
    version: int
    runs: Runs

    KIND: ClassVar[int] = 8
    FIELDS: ClassVar[struct.Struct] = struct.Struct("<IQ")


Header = Push | Values | State | Adopted | Pull | Missing | Norms | Confirmed | AsynchronousHeader
Outgoing = tuple[str, Header]
"""To whom, and what; the blocks that go with it lie in the sender's memory."""

_NORM = struct.Struct("<Id")
_FIXED: dict[int, type[Push] | type[Values] | type[State] | type[Adopted]] = {
    kind.KIND: kind for kind in (Push, Values, State, Adopted)
}

_ASKED: dict[int, type[Pull] | type[Confirmed]] = {kind.KIND: kind for kind in (Pull, Confirmed)}


def pack(header: Header) -> bytes:  # noqa: PLR0911  # one line a kind
    """The header's bytes."""
    kind = _KIND.pack(header.KIND)
    match header:
        case Push(generation, step, index, after, first, count):
            return kind + header.FIELDS.pack(generation, step, index, after, first, count)
        case Values(generation, version, first, count) | State(generation, version, first, count):
            return kind + header.FIELDS.pack(generation, version, first, count)
        case Adopted(generation, first, count):
            return kind + header.FIELDS.pack(generation, first, count)
        case Pull(generation, version, runs) | Confirmed(generation, version, runs):
            return kind + header.FIELDS.pack(generation, version) + _packed(runs)
        case Missing(generation, step, index, runs):
            return kind + header.FIELDS.pack(generation, step, index) + _packed(runs)
        case Norms(generation, step, norms):
            return kind + header.FIELDS.pack(generation, step) + b"".join(_NORM.pack(*norm) for norm in norms)
        case _:
            return pack_asynchronous(header)


def unpack(data: bytes) -> Header:
    """The header in these bytes.

    Raises:
        ProtocolError: of an unknown kind, too short, too long, or with a run of no blocks.
    """
    try:
        (kind,) = _KIND.unpack_from(data)
        if kind in KINDS:
            return unpack_asynchronous(data)
        if kind in _FIXED:
            fixed = _FIXED[kind]
            header = fixed(*fixed.FIELDS.unpack(data[1:]))
            if header.count == 0:
                raise ProtocolError(f"a {fixed.__name__} message of no blocks")
            return header
        if kind in _ASKED:
            asked = _ASKED[kind]
            generation, version = asked.FIELDS.unpack_from(data, 1)
            return asked(generation, version, _runs(data[1 + asked.FIELDS.size :]))
        if kind == Missing.KIND:
            generation, step, index = Missing.FIELDS.unpack_from(data, 1)
            return Missing(generation, step, index, _runs(data[1 + Missing.FIELDS.size :]))
        if kind == Norms.KIND:
            generation, step = Norms.FIELDS.unpack_from(data, 1)
            norms = tuple(_NORM.iter_unpack(data[1 + Norms.FIELDS.size :]))
            if len(norms) > MOST_NORMS:
                raise ProtocolError(f"a Norms message of {len(norms)} blocks; at most {MOST_NORMS}")
            return Norms(generation, step, norms)
    except struct.error as error:
        raise ProtocolError(f"a message whose header of {len(data)} bytes cannot be read: {error}") from error
    raise ProtocolError(f"a message of unknown kind {kind}")


def runs_of(blocks: Sequence[int]) -> Runs:
    """Ascending block numbers as runs."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and block == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return tuple(runs)


def _packed(runs: Runs) -> bytes:
    return b"".join(_RUN.pack(*run) for run in runs)


def _runs(data: bytes) -> Runs:
    runs = tuple(_RUN.iter_unpack(data))
    if len(runs) > MOST_RUNS:
        raise ProtocolError(f"a message of {len(runs)} runs of blocks; at most {MOST_RUNS}")
    return runs
