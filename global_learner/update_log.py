"""The update log on disk: what was applied, in the order in which it was applied, with everything to apply it again.

A log is a folder of segments. A segment is a header (magic, spec digest, first step) and records, each with its length
and checksum in front. A record holds the step and the learning rate *as used*, so that a replay depends on no setting,
no clock and no count of clusters. A crash can leave a record half written at the end of the last segment, and behind
its records any segment may hold what is left of its file's former life: records of older steps. A reader stops before
either. A segment that stops before the next one begins is an error, since acknowledged updates would be missing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

import numpy as np
import structlog

from global_learner.errors import StateUnusable
from global_learner.log_tail import check_tail
from policy_net.exchange.wire import GradientUpdate

_log = structlog.get_logger()

MAGIC = b"FEDL2LOG"
_SEGMENT = struct.Struct("<8sI32sQ")  # magic, format, spec digest, first step
_FORMAT = 2
_RECORD = struct.Struct("<II")  # length of the body, crc32 of the body
# step, incarnation, sequence, base, samples, effective, rate, active, unix, name, and since format 2 the kind
_BODIES = {1: struct.Struct("<QQQQQddIdH"), 2: struct.Struct("<QQQQQddIdHB")}
_BODY = _BODIES[_FORMAT]
_LARGEST_BODY = 1 << 30
_LONGEST_NAME_BYTES = 255
RECORD_BYTES = 512
"""More than a record takes beside its gradient."""


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
    return _SEGMENT.pack(MAGIC, _FORMAT, bytes.fromhex(spec_digest), first_step)


def encode(applied: AppliedUpdate) -> tuple[bytes, memoryview]:
    """A record as two buffers, so that the gradient is not copied."""
    update = applied.update
    name = update.cluster.encode()
    if applied.kind is Kind.RESET:
        gradient = memoryview(applied.head)
    else:
        gradient = np.ascontiguousarray(update.gradient, dtype="<f4").data.cast("B")
    head = (
        _BODY.pack(
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
    return _RECORD.pack(len(head) + len(gradient), checksum) + head, gradient


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
                if form not in _BODIES or digest.hex() != spec_digest:
                    raise StateUnusable(
                        f"{path}: log of format {form} for spec {digest.hex()[:12]}, this learner serves "
                        f"{spec_digest[:12]}; use another state_dir"
                    )
                end = stream.tell()
                for applied in _records(stream, spec_digest, _BODIES[form]):
                    if applied.step < next_step:
                        break
                    next_step, end = applied.step + 1, stream.tell()
                    yield applied
                if end_step is None:
                    check_tail(path, end, next_step, _RECORD, _BODIES[form])
            elif end_step is None:
                _look_at_head(path, header)
            if end_step is not None and next_step < end_step:
                raise StateUnusable(f"{path}: damaged before its end; restore the state directory from a copy")
    except OSError as error:
        raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error


def _look_at_head(path: Path, header: bytes) -> None:
    """What begins like no segment: one that a crash left before its first byte, or something else."""
    if any(header) and not MAGIC.startswith(header[: len(MAGIC)]):
        raise StateUnusable(f"{path}: does not begin as an update log does; restore the state directory from a copy")
    _log.warning("log-segment-empty", file=str(path), advice="a crash can leave one; nothing else should")


def _records(stream: BinaryIO, spec_digest: str, layout: struct.Struct) -> Iterator[AppliedUpdate]:
    """Records up to the first that is not whole."""
    while True:
        prefix = stream.read(_RECORD.size)
        length, checksum = _RECORD.unpack(prefix) if len(prefix) == _RECORD.size else (0, 0)
        body = stream.read(length) if layout.size <= length <= _LARGEST_BODY else b""
        if len(body) < max(length, layout.size) or zlib.crc32(body) != checksum:
            return
        yield _decode(body, spec_digest, layout)


def read_names(path: Path, first_step: int, end_step: int) -> Iterator[AppliedUpdate]:
    """The updates of a segment that is known to be whole up to `end_step` (exclusive), without gradients or checksums.

    Raises:
        StateUnusable: it does not hold exactly these steps.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        header = stream.read(_SEGMENT.size)
        form = _SEGMENT.unpack(header)[1] if len(header) == _SEGMENT.size else _FORMAT
        layout = _BODIES.get(form, _BODY)
        for step in range(first_step, end_step):
            prefix = stream.read(_RECORD.size)
            length = _RECORD.unpack(prefix)[0] if len(prefix) == _RECORD.size else 0
            start = stream.tell()
            head = stream.read(min(length, layout.size + _LONGEST_NAME_BYTES))
            applied = _decode(head, "", layout, with_gradient=False) if len(head) >= layout.size else None
            if applied is None or applied.step != step:
                raise StateUnusable(f"{path}: update {step} is missing; restore the state directory from a copy")
            stream.seek(start + length)
            yield applied


def _decode(body: bytes, spec_digest: str, layout: struct.Struct, with_gradient: bool = True) -> AppliedUpdate:
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
