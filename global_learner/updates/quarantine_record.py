"""Record of quarantines on disk: what remains of each, how much of each cluster's budget is used, and what happened.

`quarantine.jsonl` of the state directory is written aside and takes its name last, with a checksum over all of it and
the number of times that it was written. The commit record and the other stores know that number, so that a record that
is gone, emptied or an older one is missed: whoever was in quarantine would be free.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from global_learner.errors import StateUnusable
from global_learner.storage.commits import QUARANTINE, WAY_OUT, Commits, Losses

_log = structlog.get_logger()

NAME = "quarantine.jsonl"
_FORMAT = 3
_UNCOUNTED_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Judgements:
    """What is known of clusters that were faulty: what remains of quarantines, faults of each budget, and events."""

    remaining_seconds: Mapping[str, float] = field(default_factory=dict)
    faults: Mapping[str, float] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()


class _Damaged(Exception):
    """These bytes are not what was written; says how one sees it."""


class QuarantineRecord:
    """The record of one state directory; reading it changes nothing.

    Args:
        commits: the state directory's record, which it is counted in; None: it is counted against nothing.
        unix_seconds: now, for records of an earlier program.

    Raises:
        StateUnusable: it is damaged, gone, or an older one, unless losses are accepted.

    Attributes:
        kept: what it says; nothing where it cannot be read.
        is_lost: it is damaged, gone or an older one, and that is accepted.
        is_old: it is as an earlier program wrote it.
    """

    def __init__(self, state_dir: Path, commits: Commits | None, unix_seconds: float) -> None:
        self.path = state_dir / NAME
        self.kept = Judgements()
        self.is_lost = self.is_old = False
        self._commits = commits
        self._count = 0
        try:
            self._read(unix_seconds)
        except (UnicodeDecodeError, OSError):
            self._lose("it cannot be read")
        except _Damaged as error:
            self._lose(str(error))
        else:
            if commits is not None:
                self.is_lost = self._count < commits.count(QUARANTINE)
                commits.found(QUARANTINE, self._count, str(self.path))

    def write(self, judgements: Judgements) -> None:
        """Replace it; durable and counted when this returns.

        Raises:
            OSError: the disk refused; what stood there still stands.
        """
        count = max(self._count, 0 if self._commits is None else self._commits.count(QUARANTINE)) + 1
        data = _text(judgements, count)
        write_whole(self.path, data, alone=True, mode=PRIVATE)
        self._count = count
        if self._commits is not None:
            self._commits.committed(QUARANTINE, count, zlib.crc32(data))

    def _lose(self, how: str) -> None:
        self.is_lost = True
        what = f"{self.path}: damaged ({how}); whoever was in quarantine is not known"
        if self._commits is None:
            raise StateUnusable(f"{what}; {WAY_OUT}")
        self._commits.lose(what)

    def _read(self, unix_seconds: float) -> None:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        if data:
            text = data.decode()
            self.is_old = not text.startswith(json.dumps({"format": _FORMAT})[:-1])
            if text.startswith('{"event"'):
                self.kept = _read_first_format(self.path, text, unix_seconds)
            else:
                self.kept, self._count = _read_whole(self.path, text)
        elif self._commits is None or (self._commits.rule is Losses.REFUSE and not self._commits.count(QUARANTINE)):
            self.path.unlink()  # said once
            advice = "a crash of an older learner can leave it so; whoever was in quarantine is looked at again"
            _log.warning("quarantine-record-empty", file=str(self.path), advice=advice)


def _text(judgements: Judgements, count: int) -> bytes:
    last = {"remaining_seconds": judgements.remaining_seconds, "faults": judgements.faults}
    lines = ({"format": _FORMAT, "count": count}, *judgements.events, last)
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return body + _end(body)


def _end(body: bytes) -> bytes:
    return json.dumps({"crc32": f"{zlib.crc32(body):08x}"}).encode() + b"\n"


def _read_whole(path: Path, text: str) -> tuple[Judgements, int]:
    body, _, _ = text.removesuffix("\n").rpartition("\n")
    body += "\n"
    if text.encode() != body.encode() + _end(body.encode()):
        raise _Damaged("its checksum is not that of its lines")
    head, *events, last = [parse_json(line) for line in body.splitlines()]
    if head.get("format") not in (_UNCOUNTED_FORMAT, _FORMAT):
        raise StateUnusable(f"{path}: of a format that this learner does not know: {head}; start a newer one")
    remaining, faults = last["remaining_seconds"], last.get("faults", {})
    return Judgements({c: float(s) for c, s in remaining.items()}, faults, events), int(head.get("count", 0))


def _read_first_format(path: Path, text: str, unix_seconds: float) -> Judgements:
    """The record as learners wrote it line by line, without a checksum, by the wall clock."""
    *whole, torn = text.split("\n")
    if torn:
        _log.warning("quarantine-record-torn", file=str(path), line=len(whole) + 1)
    until: dict[str, float] = {}
    events = []
    for number, line in enumerate(whole, start=1):
        try:
            entry = parse_json(line)
            if entry["event"] == "quarantined":
                until[entry["cluster"]] = float(entry["until_unix_seconds"])
            else:
                until.pop(entry["cluster"], None)
            events.append(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise _Damaged(f"line {number} cannot be read") from error
    remaining = {cluster: end - unix_seconds for cluster, end in until.items() if end > unix_seconds}
    return Judgements(remaining, events=events)
