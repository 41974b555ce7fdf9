"""Journal of a coordinator: what it decided, on disk before anybody hears of it.

A record has sections of the state as JSON, and a checksum. A crash can leave the last one half written: reading stops
before it. A record that is bad while good ones follow is damage, and refused, since what was acknowledged would be
missing.

Room for more records is reserved ahead, so that a disk that fills up is noticed while the journal can still take what
keeps the job going; requests are refused from then on. A record that finds no room waits, and is written together with
the next one, as each brings whole sections. When the file has grown, it is replaced by one with a single snapshot.

`JournalUnusable` ends the coordinator with exit code 1; what it recorded stands. `JournalDamaged` is the case that
starting it again does not mend: exit code 2, so that nobody does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import structlog
from pydantic import TypeAdapter, ValidationError

from elastic_runtime.coordinator.rules.state import CoordinatorState
from elastic_runtime.errors import BadInput, ElasticError
from foundation.errors import DISK_FULL
from foundation.files import open_ordinary, sync_folder, write_at
from foundation.locks import FileLock, LockHeld

_log = structlog.get_logger()
_FORMAT = 1
_RESERVE_BYTES = 1 << 20
"""Hundreds of records of a usual job."""
_CUT_BYTES = 4 << 20
_CUT_FACTOR = 4
"""A file is cut once it is so many times its snapshot, so that cutting costs less than writing."""
_HEAD = struct.Struct("<4sIQI")  # marker, crc32 of the rest and the body, sequence, length
_CHECKED = struct.Struct("<QI")
_MARKER = b"\xe1JR\x01"
_LARGEST_BODY = 1 << 30
_SECTIONS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(section) for name, section in get_type_hints(CoordinatorState).items() if name != "return"
}


class JournalUnusable(ElasticError):
    """The journal's disk fails. Exit code 1."""


class JournalDamaged(JournalUnusable, BadInput):
    """The journal is no journal, damaged, or of another version; it is left as it is. Exit code 2."""


class Journal:
    """A file of records, open for one coordinator alone.

    Args:
        allocate: reserves room in a file: `allocate(descriptor, offset, bytes)`; tests fill the disk here.

    Raises:
        BadInput: the folder cannot be used, is in use by another coordinator, or is another job's.
        JournalDamaged: the file is damaged, or no journal.
    """

    def __init__(
        self,
        folder: Path,
        job: str,
        reserve_bytes: int = _RESERVE_BYTES,
        cut_bytes: int = _CUT_BYTES,
        allocate: Callable[[int, int, int], None] = os.posix_fallocate,
    ) -> None:
        self._path = folder / "journal"
        self._job, self._reserve_bytes, self._cut_bytes = job, reserve_bytes, cut_bytes
        self._allocate = allocate
        self._pending: dict[str, Any] = {}
        self._full = self._unwritten = False
        self._sequence = self._end = self._reserved = self._snapshot_bytes = 0
        try:
            self._lock = FileLock(folder / "journal.lock")
        except LockHeld as error:
            raise BadInput(f"another coordinator of job {job} runs on {folder}; end it first") from error
        except OSError as error:
            raise BadInput(f"the journal's folder {folder} cannot be used: {error}") from error
        try:
            self._file = open_ordinary(self._path, os.O_RDWR | os.O_CREAT)
            self.state = self._read()
        except OSError as error:
            self._lock.release()
            raise JournalDamaged(f"the journal {self._path} cannot be read: {error.strerror}") from error
        except (BadInput, JournalUnusable):
            self._lock.release()
            raise

    @property
    def full(self) -> bool:
        """Whether no more room can be reserved; looks again each time."""
        return bool(self._pending) or not self._reserve()

    @property
    def end_bytes(self) -> int:
        """Where the next record goes; behind it is reserved room."""
        return self._end

    def append(self, record: Mapping[str, Any]) -> bool:
        """Make a record durable, with those that waited; False if it has to wait for room itself.

        Raises:
            JournalUnusable: the disk fails otherwise; what is in the file is not known any more.
        """
        self._pending.update(record)
        if not self._pending:
            if self._full:
                self._reserve()
            return True
        body = pack(self._sequence, encode(self._pending))
        self._reserve(len(body))
        if self._end + len(body) > self._reserved:
            return False
        try:
            self._write(body)
        except OSError as error:
            if error.errno in DISK_FULL:  # reserved room that is none: file systems that copy on write, quotas
                self._unwritten = True
                self._note(True)
                return False
            raise JournalUnusable(f"the journal {self._path} cannot be written: {error}") from error
        self._end += len(body)
        self._sequence += 1
        self._pending = {}
        if self._unwritten:
            self._unwritten = False
            self._reserve()
        return True

    def cut(self, state: CoordinatorState) -> None:
        """Replace the file by a snapshot of `state`, if it has grown; where there is no room for it, it stays."""
        if self._end < max(self._cut_bytes, _CUT_FACTOR * self._snapshot_bytes) or self._pending:
            return
        aside = self._path.with_name("journal.new")
        data = self._header() + pack(1, encode(whole(state)))
        try:
            self._check_place()
            descriptor = open_ordinary(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                write_at(descriptor, 0, (data,))
                os.fsync(descriptor)
                aside.replace(self._path)
            except OSError:
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    aside.unlink()
                raise
        except OSError as error:
            _log.warning("journal-not-cut", path=str(self._path), error=str(error))
            self._snapshot_bytes = self._end  # not again before it has grown much more
            return
        os.close(self._file)
        self._file, self._sequence = descriptor, 2
        self._end = self._reserved = self._snapshot_bytes = len(data)
        sync_folder(self._path.parent)

    def _check_place(self) -> None:
        """See that the name is still this file's: a job's script can put a link in its folder's place.

        Raises:
            OSError: it is another one's.
        """
        if not os.path.samestat(os.fstat(self._file), self._path.lstat()):
            raise OSError(errno.ESTALE, "something else stands in its place", str(self._path))

    def close(self) -> None:
        """Give file and lock back."""
        os.close(self._file)
        self._lock.release()

    def _read(self) -> CoordinatorState | None:
        data = self._path.read_bytes()
        bodies, self._end = unpack(data, str(self._path))
        if bodies:
            self._check_header(bodies[0])
        elif not self._header().startswith(data.rstrip(b"\x00")):  # else it is one that was begun
            raise JournalDamaged(
                f"{self._path} holds no coordinator's record: restore the file, or begin a new job from the newest "
                "checkpoint"
            )
        self._sequence = len(bodies)
        os.ftruncate(self._file, self._end)
        self._reserved = self._end
        if not bodies:
            header = self._header()
            self._write(header)
            self._end = self._reserved = len(header)
            self._sequence = 1
            sync_folder(self._path.parent)
        try:
            return restore(bodies[1:])
        except JournalDamaged as error:
            raise JournalDamaged(f"{self._path} {error}") from error

    def _header(self) -> bytes:
        return pack(0, json.dumps({"format": _FORMAT, "job": self._job}).encode())

    def _check_header(self, body: bytes) -> None:
        try:
            header = json.loads(body)
            version, job = header["format"], header["job"]
        except (ValueError, KeyError, TypeError) as error:
            raise JournalDamaged(f"{self._path} is not a coordinator's journal") from error
        if version != _FORMAT:
            raise JournalDamaged(f"{self._path} has format {version!r}, and this version reads {_FORMAT}")
        if job != self._job:
            raise BadInput(f"{self._path} is of job {job!r}, not of {self._job}: give each job its own folder")

    def _reserve(self, bytes_needed: int = 0) -> bool:
        """Have room for a record of this size and half a reserve; False if the disk has none."""
        desired_bytes = self._end + bytes_needed + self._reserve_bytes // 2
        if self._reserved >= desired_bytes:
            self._note(self._unwritten)
            return True
        size = desired_bytes + self._reserve_bytes // 2 - self._reserved
        try:
            self._allocate(self._file, self._reserved, size)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise JournalUnusable(f"no room can be reserved for the journal {self._path}: {error}") from error
            self._note(True)
            return False
        self._reserved += size
        self._note(self._unwritten)
        return True

    def _note(self, full: bool) -> None:
        if full != self._full:
            self._full = full
            _log.warning("journal-disk-filled" if full else "journal-disk-freed", path=str(self._path))

    def _write(self, data: bytes) -> None:
        write_at(self._file, self._end, (data,))
        os.fdatasync(self._file)


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
    # A crash leaves the last record incomplete, and reserved room holds zeros or older records: nobody was told that
    # these are safe. A whole record behind an unreadable place shows damage: going on would lose what was acknowledged.
    # Records are looked for byte by byte, since a damaged one does not say how long it is.
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
        raise JournalDamaged(
            "holds a record that this version cannot read: go on with the version that wrote it, or begin a new job "
            "from the newest checkpoint"
        ) from error


def restore(records: list[bytes]) -> CoordinatorState | None:
    """The state after all records, each of which replaces the sections that it has; None if there are none.

    Raises:
        JournalDamaged: see `decode`.
    """
    if not records:
        return None
    state = CoordinatorState()
    for body in records:
        for name, value in decode(body).items():
            setattr(state, name, value)
    return state


def whole(state: CoordinatorState) -> dict[str, Any]:
    """A record of all sections."""
    return {field.name: getattr(state, field.name) for field in fields(CoordinatorState)}
