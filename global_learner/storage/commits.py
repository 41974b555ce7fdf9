"""Commit record: how far every store of the state directory has come, kept apart from all of them.

A log whose end is damaged looks like one that a crash cut short, and a database whose WAL is damaged like one of
yesterday. What tells them apart is somebody else's word. So each store has a count that only grows (the log its step, a
database its transactions); this file holds all counts, and each store holds those of the others as they were at its own
last commit. At the start none may be behind what another saw of it.

The file is written after a store's own sync and before anybody is told, but is not synced itself: after a kill it is
exact, after a power failure it may be older, and it is never ahead. Its two slots are written in turn, so that a write
that is torn leaves the one before.

Source: etcd keeps its hard state (the commit index) beside the entries in the same way, and refuses a log that ends
before it (`wal.ReadAll`). Deviation: not synced with every group, as that would cost a second sync per update.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import structlog

from foundation.files import PRIVATE, write_at, write_whole
from foundation.text import parse_json
from global_learner.errors import StateUnusable

_log = structlog.get_logger()

NAME = "commits"
LOG = "log"
"""The count of the update log: the last step that was acknowledged."""
VERSIONS = "versions"
"""The number of the newest version that ever was."""
VERSIONS_LOST = "versions-lost"
"""Of versions up to this number those that the registry lacks were lost, and that was accepted."""
RECEIPTS = "receipts"
"""The step of the newest receipt."""
SETTINGS = "settings"
"""1 once the settings of the log were written."""
QUARANTINE = "quarantine"
"""How often the record of quarantines was written."""
ROOTS = "roots"
"""The number of the newest root of the fleet's keys."""
TIMESTAMPS = "timestamps"
"""The number that no timestamp has reached."""
_SLOT_BYTES = 4096
"""A slot never shares a page with the other one."""
_PREFIX = struct.Struct("<8sII")  # magic, crc32 of the length and the content, length of the content
_LENGTH = struct.Struct("<I")
_MAGIC = b"FEDL2CMT"

WAY_OUT = (
    "restore the state directory from a backup, or accept the loss with `global-learner accept-loss`, which says and "
    "writes down what is lost"
)


class Losses(Enum):
    """What is done about a loss."""

    REFUSE = "refuse"
    """It is an error: nothing is begun."""
    LIST = "list"
    """It is noted, and nothing at all is written."""
    ACCEPT = "accept"
    """It is noted, and gone on from once `Commits.accept` was called."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """What somebody saw of a store."""

    count: int
    by: str


class Commits:
    """The record of one state directory, held by the one process that holds the directory's lock.

    Args:
        rule: whether a loss is refused, or noted in `losses`.
        afresh: the first write makes a new file, as an earlier learner may still have the present one open.

    Raises of all methods:
        StateUnusable: something is lost, and losses are not accepted.
        OSError: the disk refused.
    """

    def __init__(self, state_dir: Path, rule: Losses = Losses.REFUSE, afresh: bool = False) -> None:
        self.losses: list[str] = []
        self._path = state_dir / NAME
        self._where = str(state_dir)
        self.rule = rule
        self._deferred = rule is not Losses.REFUSE
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._afresh = afresh
        self._number = 0
        self._claims: dict[str, _Claim] = {}
        self._counts: dict[str, int] = {}
        self._checks: dict[str, int | None] = {}
        self._found: dict[str, tuple[int, str]] = {}
        self._read()

    @property
    def step(self) -> int:
        """All updates up to this step were acknowledged; later ones may have been, if the machine failed."""
        return self._counts.get(LOG, 0)

    def count(self, store: str) -> int:
        """How far a store was seen to have come by anybody; 0 if nobody saw it."""
        claim = self._claims.get(store)
        return max(self._counts.get(store, 0), claim.count if claim else 0)

    def check(self, store: str, count: int) -> int | None:
        """The checksum that a store had at just this count; None if that was not noted."""
        return self._checks.get(store) if self._counts.get(store) == count else None

    def counts(self) -> dict[str, int]:
        """All counts, for a store that is about to commit: durable, every one of them."""
        with self._lock:
            return dict(self._counts)

    def claim(self, by: str, counts: Mapping[str, int]) -> None:
        """Take what somebody saw of the stores, each of which is checked against it."""
        more = {store: count for store, count in counts.items() if count > self.count(store)}
        self._claims.update({store: _Claim(count, by) for store, count in more.items()})
        for store in more:
            if store in self._found:
                self.found(store, *self._found[store])

    def found(self, store: str, count: int, where: str) -> None:
        """Check how far a store has come against all that was seen of it; `where` is its file, for people."""
        seen = self.count(store)
        self._found[store] = (count, where)
        if count < seen and not (store == VERSIONS and seen <= self.count(VERSIONS_LOST)):
            claim = self._claims.get(store)
            by = claim.by if claim is not None and claim.count == seen else NAME
            if store == LOG:
                missing = f"update {seen} is" if count + 1 == seen else f"updates {count + 1} to {seen} are"
                self.lose(f"{where}: {missing} missing, which {by} knows as acknowledged")
            elif store == RECEIPTS:
                self.lose(f"{where}: the receipts of updates {count + 1} to {seen}, which {by} knows, are missing")
            elif store == ROOTS:
                self.lose(f"{where}: root {seen}, which {by} knows, is missing; the newest is {count or 'none'}")
            elif store == VERSIONS:
                self.lose(f"{where}: v{seen}, which {by} knows, is missing; the newest is v{count}")
            elif count == 0:
                self.lose(f"{where}: gone or emptied: {by} saw {seen} change{'s' if seen > 1 else ''} of it")
            else:
                changes = f"{seen - count} change{'s' if seen - count > 1 else ''}"
                self.lose(f"{where}: {changes} fewer than {by} saw: it fell back to an older state")

    def lose(self, what: str) -> None:
        """Refuse to go on over a loss, or note it."""
        if self.rule is Losses.REFUSE:
            raise StateUnusable(f"{what}; {WAY_OUT}")
        self.losses.append(what)

    def committed(self, store: str, count: int, check: int | None = None) -> None:
        """Note that a store is durable up to here; `check` is the checksum of its file, or of its last record."""
        with self._lock:
            self._counts[store] = count
            self._found[store] = (count, self._found[store][1] if store in self._found else self._where)
            self._checks[store] = check
            if not self._deferred:
                self._write()

    def accept(self) -> None:
        """From now on write again: what is lost is written down elsewhere."""
        with self._lock:
            self._deferred = False
            self._write()

    def sync(self) -> None:
        """Let what was noted outlast the machine too."""
        with self._lock:
            if self._descriptor is not None:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        slots = [_parse(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
        whole = [slot for slot in slots if slot is not None]
        if len(whole) < 2:
            _log.warning(
                "commit-record-damaged",
                file=str(self._path),
                advice="what is left of it is used; the stores are still checked against each other",
            )
        if whole:
            newest = max(whole, key=lambda slot: int(slot["number"]))
            self._number = newest["number"]
            self._counts.update(newest["counts"])
            self._checks.update(newest["checks"])

    def _write(self) -> None:
        self._number += 1
        content = json.dumps({"number": self._number, "counts": self._counts, "checks": self._checks}).encode()
        slot = _slot(content)
        if self._descriptor is None:
            if self._afresh or not self._path.exists() or self._path.stat().st_size != 2 * _SLOT_BYTES:
                write_whole(self._path, slot * 2, mode=PRIVATE, alone=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        write_at(self._descriptor, self._number % 2 * _SLOT_BYTES, [slot])


def _slot(content: bytes) -> bytes:
    length = _LENGTH.pack(len(content))
    data = _PREFIX.pack(_MAGIC, zlib.crc32(length + content), len(content)) + content
    return data.ljust(_SLOT_BYTES, b"\0")


def _parse(data: bytes) -> dict[str, Any] | None:
    if len(data) < _PREFIX.size:
        return None
    magic, checksum, length = _PREFIX.unpack_from(data)
    content = data[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC or zlib.crc32(_LENGTH.pack(length) + content) != checksum:
        return None
    found: dict[str, Any] = parse_json(content)
    return found
