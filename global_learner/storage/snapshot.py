"""The head on disk, whole or not at all.

A snapshot of step S makes every log record up to S unnecessary. It is written beside its final name, synced, renamed,
and the folder synced, before anything is removed. The file of the snapshot before it is kept, to be written over next
time: freeing its blocks would hold up the syncs of the log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from global_learner.durable_files import sync_folder, write_at
from global_learner.errors import StateUnusable
from global_learner.snapshot_format import Snapshot, parse_snapshot, snapshot_parts
from global_learner.updates.head import Head

__all__ = ["Snapshot", "read_newest_snapshot", "snapshot_of", "write_snapshot"]

_PARTIAL = "head.partial"


def snapshot_of(head: Head, spec_digest: str, counters: Mapping[str, Any]) -> Snapshot:
    """The head as it is now, shared with nothing that goes on."""
    return Snapshot(spec_digest, head.state.copy(), head.ledger.to_json(), counters, head.aggregator.kept())


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("head-*.snapshot"))


def write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot durably, then remove older ones.

    Raises:
        OSError: it could not be written; the older ones are still there.
    """
    path = folder / f"head-{snapshot.state.step:020d}.snapshot"
    partial = folder / _PARTIAL
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.truncate(descriptor, write_at(descriptor, 0, snapshot_parts(snapshot)))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    partial.replace(path)
    sync_folder(folder)
    for old in _files(folder):
        if old < path:
            old.replace(partial)


def read_newest_snapshot(folder: Path, spec_digest: str) -> Snapshot | None:
    """The newest snapshot, or None in a new state directory.

    Raises:
        StateUnusable: it is unreadable, damaged, or of another spec.
    """
    files = _files(folder)
    if not files:
        return None
    path = files[-1]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error
    return parse_snapshot(data, spec_digest, str(path))
