"""Receipts on disk: appended to few large files, of which the oldest go beyond a limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from global_learner.durable_files import sync_folder
from global_learner.storage.receipts import (
    REMOVED_NAME,
    Receipt,
    Removed,
    read_receipt_file,
    read_removed,
    receipt_files,
)

FILES = 16
"""At the limit there are about so many files, so that a sixteenth of the receipts goes at once."""


def append_receipts(folder: Path, receipts: Sequence[Receipt], max_bytes: int) -> None:
    """Add receipts that follow the newest one; durable when this returns. Some that are there already do no harm.

    Raises:
        OSError: they could not be written; part of them may be there.
        StateUnusable: older ones that had to go are damaged.
    """
    if not receipts:
        return
    data = "".join(receipt.to_line() for receipt in receipts).encode()
    files = receipt_files(folder)
    path = files[-1] if files else None
    if path is None or path.stat().st_size + len(data) > max_bytes // FILES:
        path = folder / f"updates-{receipts[0].step:020d}.jsonl"
    with path.open("ab") as stream:
        # A crash or a full disk may have left part of a line.
        stream.truncate(_end_of_lines(path))
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    if path not in files:
        sync_folder(folder)
        _remove_oldest(folder, max_bytes)


def _end_of_lines(path: Path) -> int:
    """Where the last whole line ends."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        stream.seek(max(0, size - 4096))
        tail = stream.read()
    return size - len(tail) + tail.rfind(b"\n") + 1 if b"\n" in tail else 0


def _remove_oldest(folder: Path, max_bytes: int) -> None:
    files = receipt_files(folder)
    excess = sum(path.stat().st_size for path in files) - max_bytes
    gone = []
    for path in files[:-1]:
        if excess <= 0:
            break
        gone.append(path)
        excess -= path.stat().st_size
    if not gone:
        return
    removed = read_removed(folder)
    through, applied = removed.through_step, removed.applied.copy()
    for path in gone:
        for receipt in read_receipt_file(path, newest=False):
            if receipt.step > through:
                through = receipt.step
                applied[receipt.cluster, receipt.incarnation] += 1
    partial = folder / f"{REMOVED_NAME}.partial"
    with partial.open("w") as stream:
        stream.write(Removed(through, applied).to_json())
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(folder / REMOVED_NAME)
    sync_folder(folder)
    for path in gone:
        path.unlink()
