"""Quarantine of clusters: their updates are not looked at, because too many of them were faulty.

A cluster has a budget of faults, a leaky bucket: each faulty update fills it by one, each sound one empties it by a
little. So a burst of faults ends in quarantine, and so does a constant share of them, however it is spread; rare ones
are forgiven. How long a quarantine lasts is counted on a clock that nobody sets. What remains of each, and of each
budget, outlives the learner; time in which no learner runs does not count. A quarantine is on disk before the first
update is turned away for it; what changes with every update is written down once a minute.

`quarantine.jsonl` of the state directory is written aside and takes its name last, with a checksum over all of it and
the number of times that it was written. The commit record and the other stores know that number, so that a record that
is gone, emptied or an older one is missed: clusters in quarantine would be free.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from global_learner.errors import FAULTY, Rejection, StateUnusable, UpdateRejected
from global_learner.section_settings import QuarantineSettings
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


_EVENTS_KEPT = 1000
_KEEP_SECONDS = 60.0
"""What remains is written down this often while clusters push: a crash makes a quarantine at most so much longer, and
forgets at most the faults of so long."""


class Quarantine:
    """Remembers how each cluster's updates were judged; nothing depends on `wall_clock`, which is for people.

    Raises:
        StateUnusable: the record in the state directory is damaged, gone or an older one.
    """

    def __init__(
        self,
        settings: QuarantineSettings,
        state_dir: Path,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        commits: Commits | None = None,
    ) -> None:
        self._settings = settings
        self._wall_clock = wall_clock
        self._clock = clock
        self._record = QuarantineRecord(state_dir, commits, wall_clock())
        found, now = self._record.kept, clock()
        self._ends = {cluster: now + seconds for cluster, seconds in found.remaining_seconds.items()}
        self._events: deque[Mapping[str, Any]] = deque(found.events, maxlen=_EVENTS_KEPT)
        # In parts of a fault, of which a sound update takes back one.
        most, parts = (settings.rejections - 1) * settings.within_updates, settings.within_updates
        self._faults = {cluster: min(round(parts * level), most) for cluster, level in found.faults.items()}
        self._kept_at = now
        self._changed = self._record.is_old
        if self._changed:
            self.keep()

    @property
    def count(self) -> int:
        """Clusters that are in quarantine now."""
        return sum(self.remaining(cluster) > 0.0 for cluster in list(self._ends))

    def remaining(self, cluster: str) -> float:
        """Seconds until a cluster's quarantine ends; 0 if it is in none."""
        return max(0.0, self._ends.get(cluster, 0.0) - self._clock()) if cluster in self._ends else 0.0

    def until(self, cluster: str) -> float | None:
        """When a cluster's quarantine ends (Unix seconds), for people; None if it is in none."""
        seconds = self.remaining(cluster)
        return self._wall_clock() + seconds if seconds else None

    def admit(self, cluster: str) -> None:
        """Check that a cluster's updates are looked at.

        Raises:
            UpdateRejected: they are not.
        """
        seconds = self.remaining(cluster)
        if (self._ends or self._changed) and self._clock() - self._kept_at >= _KEEP_SECONDS:
            self.keep()
        if seconds:
            raise UpdateRejected(
                Rejection.QUARANTINED,
                f"cluster {cluster} is in quarantine for {seconds:.0f} s more: too many of its updates were faulty; "
                "mend the agent, then `policyctl cluster release` it",
            )

    def on_judged(self, cluster: str, reason: Rejection | None) -> None:
        """Note how an update was judged; None if it was accepted. Reasons that befall sound agents do not count."""
        if self._settings.seconds == 0.0 or (reason is not None and reason not in FAULTY):
            return
        parts = self._settings.within_updates
        faults = self._faults.pop(cluster, 0)
        self._changed = self._changed or faults > 0 or reason is not None
        if reason is None:
            if faults > 1:
                self._faults[cluster] = faults - 1
            return
        faults += parts
        if faults <= (self._settings.rejections - 1) * parts:
            self._faults[cluster] = faults
            return
        self._ends[cluster] = self._clock() + self._settings.seconds
        self._note("quarantined", cluster, until_unix_seconds=self.until(cluster), reason=str(reason))

    def release(self, cluster: str) -> bool:
        """End a quarantine before its time; False if there is none."""
        if not self.remaining(cluster):
            return False
        del self._ends[cluster]
        self._note("released", cluster)
        return True

    def keep(self) -> None:
        """Write down what is known; where that fails, it is tried again with the next update."""
        now, parts = self._clock(), self._settings.within_updates
        expired = [cluster for cluster, end in self._ends.items() if end <= now]
        for cluster in expired:
            del self._ends[cluster]
        self._changed = self._changed or bool(expired)
        if not (self._ends or self._changed):
            return
        remaining = {cluster: end - now for cluster, end in self._ends.items()}
        faults = {cluster: level / parts for cluster, level in self._faults.items()}
        try:
            self._record.write(Judgements(remaining, faults, list(self._events)))
            self._kept_at, self._changed = now, False
        except OSError as error:
            self._kept_at = now - _KEEP_SECONDS
            _log.error("quarantine-not-kept", file=str(self._record.path), reason=error.strerror or str(error))

    def _note(self, event: str, cluster: str, **facts: Any) -> None:
        self._events.append({"event": event, "cluster": cluster, "unix_seconds": self._wall_clock(), **facts})
        self._changed = True
        self.keep()
        _log.warning(f"cluster-{event}", cluster=cluster, **facts)
