"""The record of one applied update: what it says, and its bytes in the log.

A record holds the step and the learning rate *as used*, so that a replay depends on no setting, no clock and no count
of clusters. In front stand its length, the checksum of the record before it, the step up to which everything was on
disk when it was written, and its own checksum over all of these. So records form a chain, and each bears witness that
those before its group were synced: what is found damaged before it was acknowledged. The first two formats have a
length and a checksum only; they are read, and no longer written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from global_learner.errors import BadLearnerConfig
from policy_net.exchange.wire import GradientUpdate

FORMAT = 3
# step, incarnation, sequence, base, samples, effective, rate, active, unix, name, and since format 2 the kind
LAYOUTS: Mapping[int, struct.Struct] = MappingProxyType(
    {1: struct.Struct("<QQQQQddIdH"), 2: struct.Struct("<QQQQQddIdHB"), FORMAT: struct.Struct("<QQQQQddIdHB")}
)
"""A body's first bytes by the format of its segment; they begin with the step."""
_UNCHAINED = struct.Struct("<II")  # length of the body, crc32 of the body
_LINK = struct.Struct("<IIQ")  # length of the body, checksum of the record before, step that was durable by then
_CHECKSUM = struct.Struct("<I")
PREFIXES: Mapping[int, int] = MappingProxyType({1: _UNCHAINED.size, 2: _UNCHAINED.size, FORMAT: _LINK.size + 4})
"""How many bytes stand before a body, by format."""
LARGEST_BODY = 1 << 30
LONGEST_NAME_BYTES = 255
RECORD_BYTES = 512
"""More than a record takes beside its gradient."""
_USUAL_LOG_BYTES = 512 << 20

_LAYOUT = LAYOUTS[FORMAT]
_NOISED = 0x80
"""Bit of the kind's byte: the gradient was clipped and noised, and behind the name stands with which multiplier."""
_MULTIPLIER = struct.Struct("<d")
LONGEST_HEAD_BYTES = _LAYOUT.size + LONGEST_NAME_BYTES + _MULTIPLIER.size
"""All of a body that may stand before its gradient."""


def log_limit_bytes(chosen: int | None, parameter_count: int) -> int:
    """The limit of the log's size, which a setting may choose.

    Raises:
        BadConfig: so few updates fit that the log could not be cut while others are written.
    """
    update_bytes = 4 * parameter_count + RECORD_BYTES
    if chosen is None:
        return max(_USUAL_LOG_BYTES, 32 * update_bytes)
    if chosen < 16 * update_bytes:
        raise BadLearnerConfig(
            f"setting durability.max_log_bytes = {chosen}: this policy's gradient takes {update_bytes} bytes of log, "
            f"and 16 of them must fit: name {16 * update_bytes} or more, or leave it out"
        )
    return chosen


class UpdateKind(IntEnum):
    """What an update did when it was taken; a replay does the same, whatever the settings say by then."""

    STEP = 0
    """It moved the head by itself."""
    ARRIVAL = 1
    """It joined the cohort; the head's weights stayed as they were."""
    CLOSING = 2
    """It joined the cohort, which then moved the head."""
    ROUND_PART = 3
    """It is one reply of a round; nothing but its name is kept."""
    ROUND_END = 4
    """The last reply of a round; in the gradient's place stand the weights that the round ended with."""
    RESET = 5
    """No cluster's: the head was reset to a version; in the gradient's place stands the version's head."""
    PASSED_UP = 6
    """No cluster's, in a region: all that was gathered is on its way to the learner above, as one push."""
    HEAD_ABOVE = 7
    """No cluster's, in a region: in the gradient's place stands the head of the learner above, to go on from."""
    PUBLISHED = 8
    """No cluster's: a policy that was trained elsewhere became a version at this step; the head stayed as it was."""


NO_CLUSTER = frozenset({UpdateKind.RESET, UpdateKind.PASSED_UP, UpdateKind.HEAD_ABOVE, UpdateKind.PUBLISHED})
"""Kinds that no cluster's update is."""


@dataclass(frozen=True, slots=True)
class AppliedUpdate:
    """An update as it was applied.

    Attributes:
        step: the head's step after it.
        learning_rate: Adam's, after staleness.
        active_clusters: what staleness was counted against.
        unix_seconds: when; for people, nothing depends on it.
        update: what the cluster sent; a log keeps neither its statistics nor whether it is `replayed`.
        kind: what it did to the head.
        head: of a reset: the head that it went to, in the format of snapshots, with the lessons in it for a ledger. Its
            `update` has the operator's name for a cluster, incarnation 0, the version as its sequence and the version's
            head step as its base.
        noise_multiplier: of the noise that is in the gradient, which was clipped before; 0 for none.
        sent_norm: of the gradient as it came; not logged, as is the next.
        applied_norm: of the gradient that is applied; None where only the gradient can tell, as after clipping.

    What passes between a region and the learner above has no cluster. `PASSED_UP` has the push's incarnation, sequence,
    base step and samples, all as the learner above counts. `HEAD_ABOVE` has the incarnation under which the head came,
    its step there as the base, and 1 as its samples where gradients of before are of no use any more, else 0.
    """

    step: int
    learning_rate: float
    active_clusters: int
    unix_seconds: float
    update: GradientUpdate
    kind: UpdateKind = UpdateKind.STEP
    head: bytes = b""
    noise_multiplier: float = 0.0
    sent_norm: float = field(default=0.0, compare=False)
    applied_norm: float | None = field(default=None, compare=False)

    @property
    def staleness(self) -> int:
        """Head steps between the gradient's base and the head that it was applied to."""
        return self.step - 1 - self.update.base_step


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before a body.

    Attributes:
        seed: what the body's checksum begins from.
        previous: checksum of the record before; None in formats that have no chain.
        durable_step: all steps up to here were on disk when this was written; None as above.
    """

    length: int
    checksum: int
    seed: int = 0
    previous: int | None = None
    durable_step: int | None = None

    @classmethod
    def parse(cls, data: bytes, form: int) -> Prefix | None:
        """The prefix of a record of this format; None if the bytes do not reach."""
        if len(data) < PREFIXES[form]:
            return None
        if form < FORMAT:
            return cls(*_UNCHAINED.unpack_from(data))
        length, previous, durable_step = _LINK.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, _LINK.size)
        return cls(length, checksum, zlib.crc32(data[: _LINK.size]), previous, durable_step)

    def fits(self, body: bytes) -> bool:
        """Whether this is the body that was written."""
        return len(body) == self.length and zlib.crc32(body, self.seed) == self.checksum


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record as two buffers, so that the gradient is not copied; `checksum` goes into the next one."""

    head: bytes
    gradient: memoryview
    checksum: int


def encode(applied: AppliedUpdate, previous: int = 0, durable_step: int = 0) -> Encoded:
    """A record's bytes, with the checksum of the record before it, and up to which step all is on disk by now."""
    update = applied.update
    name = update.cluster.encode()
    noised = applied.noise_multiplier > 0.0
    if applied.kind is UpdateKind.RESET:
        gradient = memoryview(applied.head)
    else:
        gradient = np.ascontiguousarray(update.gradient, dtype="<f4").data.cast("B")
    head = (
        _LAYOUT.pack(
            applied.step,
            update.incarnation,
            update.sequence,
            update.base_step,
            update.samples,
            update.effective_samples,
            applied.learning_rate,
            applied.active_clusters,
            applied.unix_seconds,
            len(name),
            applied.kind | (_NOISED if noised else 0),
        )
        + name
        + (_MULTIPLIER.pack(applied.noise_multiplier) if noised else b"")
    )
    link = _LINK.pack(len(head) + len(gradient), previous, durable_step)
    checksum = zlib.crc32(gradient, zlib.crc32(link + head))
    return Encoded(link + _CHECKSUM.pack(checksum) + head, gradient, checksum)


def decode(body: bytes, spec_digest: str, layout: struct.Struct, with_gradient: bool = True) -> AppliedUpdate:
    """The update in a record's body; it may end where the gradient begins if that is not wanted."""
    values = layout.unpack_from(body)
    step, incarnation, sequence, base, samples, effective, rate, active, unix, name_length, *kind = values
    name_end = gradient_start = layout.size + name_length
    byte = kind[0] if kind else UpdateKind.STEP.value
    what, multiplier = UpdateKind(byte & ~_NOISED), 0.0
    if byte & _NOISED:
        (multiplier,) = _MULTIPLIER.unpack_from(body, name_end)
        gradient_start += _MULTIPLIER.size
    rest = body[gradient_start:] if with_gradient else b""
    gradient, head = (b"", rest) if what is UpdateKind.RESET else (rest, b"")
    return AppliedUpdate(
        step=step,
        learning_rate=rate,
        active_clusters=active,
        unix_seconds=unix,
        update=GradientUpdate(
            cluster=body[layout.size : name_end].decode(),
            incarnation=incarnation,
            sequence=sequence,
            base_step=base,
            spec_digest=spec_digest,
            gradient=np.frombuffer(gradient, dtype="<f4").astype(np.float32, copy=False),
            samples=samples,
            effective_samples=effective,
        ),
        kind=what,
        head=head,
        noise_multiplier=multiplier,
    )
