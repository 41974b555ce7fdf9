"""Quarantine of clusters: their updates are not looked at, because too many of them were faulty.

A cluster has a budget of faults, a leaky bucket: each faulty update fills it by one, each sound one empties it by a
little. So a burst of faults ends in quarantine, and so does a constant share of them, however it is spread; rare ones
are forgiven. How long a quarantine lasts is counted on a clock that nobody sets. `quarantine.jsonl` of the state
directory keeps what remains of each, and when and why it began, for people; time in which no learner runs does not
count. It is written aside and takes its name last, with a checksum over all of it, before the first update is turned
away for it.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from foundation.files import write_whole
from foundation.text import parse_json
from global_learner.errors import FAULTY, Rejection, StateUnusable, UpdateRejected
from global_learner.settings import QuarantineSettings

_log = structlog.get_logger()

_NAME = "quarantine.jsonl"
_FORMAT = 2
_EVENTS_KEPT = 1000
_KEEP_SECONDS = 60.0
"""What remains is written down this often while clusters push: a crash makes a quarantine at most so much longer."""


class Quarantine:
    """Remembers how each cluster's updates were judged.

    Args:
        wall_clock: Unix seconds, for people; nothing depends on it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: QuarantineSettings,
        state_dir: Path,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on from what the state directory says.

        Raises:
            StateUnusable: the record is damaged.
        """
        self._settings = settings
        self._path = state_dir / _NAME
        self._wall_clock = wall_clock
        self._clock = clock
        self._faults: dict[str, int] = {}  # in parts of a fault, of which a sound update takes back one
        remaining, events = _read(self._path, wall_clock())
        now = clock()
        self._ends = {cluster: now + seconds for cluster, seconds in remaining.items()}
        self._events: deque[dict[str, Any]] = deque(events, maxlen=_EVENTS_KEPT)
        self._kept_at = now

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
        if self._ends and self._clock() - self._kept_at >= _KEEP_SECONDS:
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
        """Write down what remains; where that fails, it is tried again with the next update."""
        self._ends = {cluster: end for cluster, end in self._ends.items() if end > self._clock()}
        if not (self._ends or self._path.exists()):
            return
        now = self._clock()
        try:
            write_whole(self._path, _text({c: end - now for c, end in self._ends.items()}, self._events), alone=True)
            self._kept_at = now
        except OSError as error:
            self._kept_at = now - _KEEP_SECONDS
            _log.error("quarantine-not-kept", file=str(self._path), reason=error.strerror or str(error))

    def _note(self, event: str, cluster: str, **facts: Any) -> None:
        self._events.append({"event": event, "cluster": cluster, "unix_seconds": self._wall_clock(), **facts})
        self.keep()
        _log.warning(f"cluster-{event}", cluster=cluster, **facts)


def _text(remaining: dict[str, float], events: Sequence[dict[str, Any]] | deque[dict[str, Any]]) -> str:
    body = "".join(json.dumps(line) + "\n" for line in ({"format": _FORMAT}, *events, {"remaining_seconds": remaining}))
    return body + json.dumps({"crc32": f"{zlib.crc32(body.encode()):08x}"}) + "\n"


def _read(path: Path, unix_seconds: float) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """What remains of each cluster's quarantine in seconds, and what happened so far."""
    if not path.exists():
        return {}, []
    try:
        text = path.read_bytes().decode()
    except (UnicodeDecodeError, OSError) as error:
        raise _damaged(path, "it cannot be read") from error
    if not text:
        path.unlink()  # said once
        advice = "a crash of an older learner can leave it so; whoever was in quarantine is looked at again"
        _log.warning("quarantine-record-empty", file=str(path), advice=advice)
        return {}, []
    first = text.partition("\n")[0]
    return _read_first_format(path, text, unix_seconds) if first.startswith('{"event"') else _read_whole(path, text)


def _read_whole(path: Path, text: str) -> tuple[dict[str, float], list[dict[str, Any]]]:
    body, _, _ = text.removesuffix("\n").rpartition("\n")
    body += "\n"
    if text != body + json.dumps({"crc32": f"{zlib.crc32(body.encode()):08x}"}) + "\n":
        raise _damaged(path, "its checksum is not that of its lines")
    lines = [parse_json(line) for line in body.splitlines()]
    if lines[0] != {"format": _FORMAT}:
        raise StateUnusable(f"{path}: of a format that this learner does not know: {lines[0]}; start a newer one")
    return {cluster: float(seconds) for cluster, seconds in lines[-1]["remaining_seconds"].items()}, lines[1:-1]


def _read_first_format(path: Path, text: str, unix_seconds: float) -> tuple[dict[str, float], list[dict[str, Any]]]:
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
            raise _damaged(path, f"line {number} cannot be read") from error
    return {cluster: end - unix_seconds for cluster, end in until.items() if end > unix_seconds}, events


def _damaged(path: Path, what: str) -> StateUnusable:
    return StateUnusable(
        f"{path}: damaged ({what}); restore it from a copy, or remove it: whoever was in quarantine is looked at again"
    )
