"""Cutting the log behind a snapshot: what a segment held becomes receipts, and its file is free.

A segment's receipts are on disk before its file is given up; a crash between the two writes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from global_learner.receipt_files import append_receipts
from global_learner.storage.receipts import receipt_of
from global_learner.storage.update_log import first_step, read_names, segments

MAX_RECEIPTS_BYTES = 256 << 20


def cut_log(
    log: Path,
    receipts: Path,
    step: int,
    with_newest: bool = False,
    give_up: Callable[[Path], None] = Path.unlink,
    max_receipts_bytes: int = MAX_RECEIPTS_BYTES,
) -> int:
    """Turn segments whose updates are all in a snapshot of `step` into receipts; how many segments.

    Args:
        with_newest: nothing is being written and the newest segment ends at `step`, perhaps in a torn tail.
        give_up: takes the file of a segment that nobody needs any more.
        max_receipts_bytes: the oldest receipts beyond this are removed.

    Raises:
        StateUnusable: a segment lacks an update.
        OSError: receipts could not be written; their segment is still there.
    """
    files = segments(log)
    ends = [first_step(path) for path in files[1:]] + ([step + 1] if with_newest and files else [])
    cut = 0
    for path, end_step in zip(files, ends, strict=False):
        if end_step > step + 1:
            break
        names = read_names(path, first_step(path), end_step)
        append_receipts(receipts, [receipt_of(applied) for applied in names], max_receipts_bytes)
        give_up(path)
        cut += 1
    return cut
