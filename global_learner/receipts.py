"""What stays of the log when it is cut: one JSON line per applied update, without the gradient.

Together with the live log this names every update that was ever applied, in order: the audit that exactly-once is
checked against. A segment's receipts are written whole before the segment is removed; a crash between the two writes
them again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from global_learner.errors import StateUnusable
from global_learner.log_writer import sync_folder
from global_learner.update_log import AppliedUpdate, read_log, read_names, segments


@dataclass(frozen=True, slots=True)
class Receipt:
    """One applied update."""

    step: int
    cluster: str
    incarnation: int
    sequence: int
    base_step: int
    staleness: int
    active_clusters: int
    learning_rate: float
    samples: int
    unix_seconds: float


def _receipt(applied: AppliedUpdate) -> Receipt:
    update = applied.update
    return Receipt(
        step=applied.step,
        cluster=update.cluster,
        incarnation=update.incarnation,
        sequence=update.sequence,
        base_step=update.base_step,
        staleness=applied.staleness,
        active_clusters=applied.active_clusters,
        learning_rate=applied.learning_rate,
        samples=update.samples,
        unix_seconds=applied.unix_seconds,
    )


def cut_log(log: Path, receipts: Path, step: int, with_newest: bool = False) -> int:
    """Turn segments whose updates are all in a snapshot of `step` into receipts; how many segments.

    Args:
        with_newest: nothing is being written and the newest segment ends at `step`, perhaps in a torn tail.

    Raises:
        StateUnusable: a segment lacks an update.
        OSError: receipts could not be written; their segment is still there.
    """
    files = segments(log)
    ends = [_first_step(path) for path in files[1:]] + ([step + 1] if with_newest and files else [])
    cut = 0
    for path, end_step in zip(files, ends, strict=False):
        if end_step > step + 1:
            break
        names = read_names(path, _first_step(path), end_step)
        lines = "".join(json.dumps(asdict(_receipt(applied))) + "\n" for applied in names)
        if lines:
            target = receipts / f"{path.stem}.jsonl"
            partial = target.with_suffix(".partial")
            with partial.open("w") as stream:
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(target)
            sync_folder(receipts)
        path.unlink()
        cut += 1
    return cut


def _first_step(segment: Path) -> int:
    return int(segment.stem.removeprefix("updates-"))


def read_receipts(state_dir: Path, spec_digest: str) -> Iterator[Receipt]:
    """Every update that was applied since the state directory began, in order; of a learner that has ended.

    Raises:
        StateUnusable: a file is damaged.
    """
    done = 0
    for path in sorted((state_dir / "receipts").glob("updates-*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            try:
                receipt = Receipt(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise StateUnusable(f"{path}, line {number}: no receipt ({error})") from error
            if receipt.step > done:
                done = receipt.step
                yield receipt
    for applied in read_log(state_dir / "log", spec_digest):
        if applied.step > done:
            done = applied.step
            yield _receipt(applied)


def audit(receipts: Iterator[Receipt]) -> Counter[tuple[str, int]]:
    """Check that steps follow each other and that no update is there twice; applied updates per (cluster, incarnation).

    Raises:
        StateUnusable: an update is missing or was applied twice.
    """
    seen: set[tuple[str, int, int]] = set()
    counts: Counter[tuple[str, int]] = Counter()
    for expected, receipt in enumerate(receipts, start=1):
        if receipt.step != expected:
            raise StateUnusable(f"update {expected} is missing from the log; the next one is {receipt.step}")
        name = (receipt.cluster, receipt.incarnation, receipt.sequence)
        if name in seen:
            raise StateUnusable(f"step {receipt.step}: {name} was applied twice")
        seen.add(name)
        counts[receipt.cluster, receipt.incarnation] += 1
    return counts
