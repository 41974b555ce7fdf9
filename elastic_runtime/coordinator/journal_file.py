"""A journal's bytes: records with a checksum each, in a file that has room reserved behind them.

A crash can leave the last record half written: reading stops before it. A record that is bad while good ones follow is
damage, and refused, since what was acknowledged would be missing. The reserved room is zeros.
"""

from __future__ import annotations

import struct
import zlib

from elastic_runtime.coordinator.errors import JournalDamaged

_HEAD = struct.Struct("<4sIQI")  # marker, crc32 of the rest and the body, sequence, length
_CHECKED = struct.Struct("<QI")
_MARKER = b"\xe1JR\x01"
_LARGEST_BODY = 1 << 30


def pack(sequence: int, body: bytes) -> bytes:
    """One record."""
    checked = _CHECKED.pack(sequence, len(body))
    return _HEAD.pack(_MARKER, zlib.crc32(body, zlib.crc32(checked)), sequence, len(body)) + body


def unpack(data: bytes, path: str) -> tuple[list[bytes], int]:
    """The bodies of all records, and where the next one goes.

    Raises:
        JournalDamaged: damage before the last record.
    """
    bodies: list[bytes] = []
    offset = 0
    while True:
        body = _record(data, offset, len(bodies))
        if body is None:
            break
        bodies.append(body)
        offset += _HEAD.size + len(body)
    later = data.find(_MARKER, offset + 1)
    while later >= 0:
        if _record(data, later, None) is not None:
            raise JournalDamaged(
                f"the journal {path} is damaged at byte {offset} of {len(data)}, before its end: "
                "restore the file, or begin a new job from the newest checkpoint"
            )
        later = data.find(_MARKER, later + 1)
    return bodies, offset


def _record(data: bytes, offset: int, sequence: int | None) -> bytes | None:
    if len(data) - offset < _HEAD.size:
        return None
    marker, checksum, found, length = _HEAD.unpack_from(data, offset)
    if marker != _MARKER or length > _LARGEST_BODY or len(data) - offset - _HEAD.size < length:
        return None
    body = data[offset + _HEAD.size : offset + _HEAD.size + length]
    if zlib.crc32(body, zlib.crc32(_CHECKED.pack(found, length))) != checksum:
        return None
    return body if sequence is None or found == sequence else None
