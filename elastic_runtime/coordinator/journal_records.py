"""Records of a coordinator's journal: sections of its state as JSON, each record with a checksum.

A crash can leave the last record half written: reading stops before it. A record that is bad while good ones follow is
damage, and refused, since what was acknowledged would be missing. The reserved room behind the records is zeros.

Errors: `JournalUnusable` ends the coordinator with exit code 1; what it recorded stands. `JournalDamaged` is the case
that starting it again does not mend: exit code 2, so that nobody does.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from elastic_runtime.coordinator.rules.state import State
from elastic_runtime.errors import BadInput, ElasticError
from foundation.record_tail import find_whole_record

_HEAD = struct.Struct("<4sIQI")  # marker, crc32 of the rest and the body, sequence, length
_CHECKED = struct.Struct("<QI")
_MARKER = b"\xe1JR\x01"
_LARGEST_BODY = 1 << 30
_SECTIONS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(section) for name, section in get_type_hints(State).items() if name != "return"
}


class JournalUnusable(ElasticError):
    """The journal's disk fails. Exit code 1."""


class JournalDamaged(JournalUnusable, BadInput):
    """The journal is no journal, damaged, or of another version; it is left as it is. Exit code 2."""


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
    if (
        find_whole_record(data, offset + 1, (_MARKER,), lambda later: _record(data, later, None) is not None)
        is not None
    ):
        raise JournalDamaged(
            f"the journal {path} is damaged at byte {offset} of {len(data)}, before its end: "
            "restore the file, or begin a new job from the newest checkpoint"
        )
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


def encode(record: Mapping[str, Any]) -> bytes:
    """A record's sections."""
    parts = (json.dumps(name).encode() + b":" + _SECTIONS[name].dump_json(value) for name, value in record.items())
    return b"{" + b",".join(parts) + b"}"


def decode(body: bytes) -> dict[str, Any]:
    """What `encode` wrote.

    Raises:
        JournalDamaged: it is of another version.
    """
    try:
        parts = json.loads(body)
        return {name: _SECTIONS[name].validate_python(value) for name, value in parts.items()}
    except (ValueError, ValidationError, KeyError, AttributeError) as error:
        raise JournalDamaged(f"a record that this version cannot read ({type(error).__name__})") from error


def restore(records: list[bytes]) -> State | None:
    """The state after all records, each of which replaces the sections that it has; None if there are none.

    Raises:
        JournalDamaged: see `decode`.
    """
    if not records:
        return None
    state = State()
    for body in records:
        for name, value in decode(body).items():
            setattr(state, name, value)
    return state


def whole(state: State) -> dict[str, Any]:
    """A record of all sections."""
    return {field.name: getattr(state, field.name) for field in fields(State)}
