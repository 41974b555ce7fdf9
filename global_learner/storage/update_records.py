"""The record of one applied update: what it says, and its bytes in the log.

A record holds the step and the learning rate *as used*, so that a replay depends on no setting, no clock and no count
of clusters. In front stand its length and its checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from policy_net.exchange.wire import GradientUpdate

FORMAT = 2
PREFIX = struct.Struct("<II")  # length of the body, crc32 of the body
# step, incarnation, sequence, base, samples, effective, rate, active, unix, name, and since format 2 the kind
LAYOUTS: Mapping[int, struct.Struct] = MappingProxyType(
    {1: struct.Struct("<QQQQQddIdH"), FORMAT: struct.Struct("<QQQQQddIdHB")}
)
"""A body's first bytes by the format of its segment; they begin with the step."""
LARGEST_BODY = 1 << 30
LONGEST_NAME_BYTES = 255
RECORD_BYTES = 512
"""More than a record takes beside its gradient."""

_LAYOUT = LAYOUTS[FORMAT]


class Kind(IntEnum):
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


@dataclass(frozen=True, slots=True)
class AppliedUpdate:
    """An update as it was applied.

    Attributes:
        step: the head's step after it.
        learning_rate: Adam's, after staleness.
        active_clusters: what staleness was counted against.
        unix_seconds: when; for people, nothing depends on it.
        update: what the cluster sent; a log does not keep its statistics.
        kind: what it did to the head.
        head: of a reset: the head that it went to, in the format of snapshots. Its `update` has the operator's name for
            a cluster, incarnation 0, the version as its sequence and the version's head step as its base.
    """

    step: int
    learning_rate: float
    active_clusters: int
    unix_seconds: float
    update: GradientUpdate
    kind: Kind = Kind.STEP
    head: bytes = b""

    @property
    def staleness(self) -> int:
        """Head steps between the gradient's base and the head that it was applied to."""
        return self.step - 1 - self.update.base_step


def encode(applied: AppliedUpdate) -> tuple[bytes, memoryview]:
    """A record as two buffers, so that the gradient is not copied."""
    update = applied.update
    name = update.cluster.encode()
    if applied.kind is Kind.RESET:
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
            applied.kind,
        )
        + name
    )
    checksum = zlib.crc32(gradient, zlib.crc32(head))
    return PREFIX.pack(len(head) + len(gradient), checksum) + head, gradient


def decode(body: bytes, spec_digest: str, layout: struct.Struct, with_gradient: bool = True) -> AppliedUpdate:
    """The update in a record's body; it may end behind the name if the gradient is not wanted."""
    values = layout.unpack_from(body)
    step, incarnation, sequence, base, samples, effective, rate, active, unix, name_length, *kind = values
    gradient_start = layout.size + name_length
    what = Kind(kind[0]) if kind else Kind.STEP
    rest = body[gradient_start:] if with_gradient else b""
    gradient, head = (b"", rest) if what is Kind.RESET else (rest, b"")
    return AppliedUpdate(
        step=step,
        learning_rate=rate,
        active_clusters=active,
        unix_seconds=unix,
        update=GradientUpdate(
            cluster=body[layout.size : gradient_start].decode(),
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
    )
