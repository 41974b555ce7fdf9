"""Quarantine of clusters: their updates are not looked at, because too many of the latest ones were faulty.

Every quarantine and every release is a line in `quarantine.jsonl` of the state directory: the record for people, and
what a restart goes on from. It is on disk before the first update is turned away for it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from foundation.text import parse_json
from global_learner.errors import FAULTY, Rejection, StateUnusable, UpdateRejected
from global_learner.settings import QuarantineSettings

_log = structlog.get_logger()

_NAME = "quarantine.jsonl"


class Quarantine:
    """Remembers how each cluster's latest updates were judged."""

    def __init__(self, settings: QuarantineSettings, state_dir: Path, wall_clock: Callable[[], float]) -> None:
        """Go on from what the state directory says.

        Raises:
            StateUnusable: the record is damaged before its last line.
        """
        self._settings = settings
        self._path = state_dir / _NAME
        self._wall_clock = wall_clock
        self._judged: dict[str, deque[bool]] = {}
        self._until = _read(self._path)

    @property
    def count(self) -> int:
        """Clusters that are in quarantine now."""
        return sum(self.until(cluster) is not None for cluster in list(self._until))

    def until(self, cluster: str) -> float | None:
        """When a cluster's quarantine ends (Unix seconds); None if it is in none."""
        until = self._until.get(cluster)
        return until if until is not None and until > self._wall_clock() else None

    def admit(self, cluster: str) -> None:
        """Check that a cluster's updates are looked at.

        Raises:
            UpdateRejected: they are not.
        """
        until = self.until(cluster)
        if until is not None:
            raise UpdateRejected(
                Rejection.QUARANTINED,
                f"cluster {cluster} is in quarantine for {until - self._wall_clock():.0f} s more: too many of its "
                "updates were faulty; mend the agent, then `policyctl cluster release` it",
            )

    def on_judged(self, cluster: str, reason: Rejection | None) -> None:
        """Note how an update was judged; None if it was accepted. Reasons that befall sound agents do not count."""
        if self._settings.seconds == 0.0 or (reason is not None and reason not in FAULTY):
            return
        latest = self._judged.setdefault(cluster, deque(maxlen=self._settings.within_updates))
        latest.append(reason is not None)
        if sum(latest) >= self._settings.rejections:
            latest.clear()
            now = self._wall_clock()
            self._until[cluster] = now + self._settings.seconds
            self._write("quarantined", cluster, until_unix_seconds=self._until[cluster], reason=str(reason))

    def release(self, cluster: str) -> bool:
        """End a quarantine before its time; False if there is none."""
        if self.until(cluster) is None:
            return False
        del self._until[cluster]
        self._write("released", cluster)
        return True

    def _write(self, event: str, cluster: str, **facts: Any) -> None:
        line = {"event": event, "cluster": cluster, "unix_seconds": self._wall_clock(), **facts}
        with self._path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        _log.warning(f"cluster-{event}", cluster=cluster, **facts)


def _read(path: Path) -> dict[str, float]:
    """When each cluster's quarantine ends; a last line that was cut short by a crash is left out."""
    until: dict[str, float] = {}
    if not path.exists():
        return until
    try:
        whole = path.read_text(encoding="utf-8").split("\n")
    except (UnicodeDecodeError, OSError) as error:
        raise StateUnusable(f"{path}: cannot be read; restore the state directory from a copy") from error
    if whole == [""]:
        path.unlink()  # said once
        advice = "a crash can leave it so; whoever was in quarantine is looked at again"
        _log.warning("quarantine-record-empty", file=str(path), advice=advice)
        return until
    torn = whole.pop()
    if torn:
        _log.warning("quarantine-record-torn", file=str(path), line=len(whole) + 1)
        path.write_text("".join(line + "\n" for line in whole))
    for number, line in enumerate(whole, start=1):
        try:
            entry = parse_json(line)
            if entry["event"] == "quarantined":
                until[entry["cluster"]] = float(entry["until_unix_seconds"])
            else:
                until.pop(entry["cluster"], None)
        except (ValueError, KeyError, TypeError) as error:
            raise StateUnusable(f"{path}, line {number}: damaged; restore the state directory from a copy") from error
    return until
