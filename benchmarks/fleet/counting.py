"""The count: whether every update that was acknowledged is in the learner's log, and none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from global_learner.storage.receipts import Receipt, read_receipts


@dataclass(frozen=True, slots=True)
class Counted:
    """The log beside the clusters' word.

    Attributes:
        logged: updates in the log, resets apart.
        lost: acknowledged and not in the log.
        twice: in the log more often than once, each further time.
        unasked: in the log and not acknowledged: 0 where every update was answered.
        gaps: steps that are missing from the log, or out of order.
    """

    logged: int
    lost: int
    twice: int
    unasked: int
    gaps: int


def count(receipts: Iterable[Receipt], acknowledged: Mapping[str, tuple[int, list[int]]]) -> Counted:
    """Compare a log with what clusters were told: by cluster, its incarnation and the numbers of its updates."""
    logged: Counter[tuple[str, int, int]] = Counter()
    gaps, step = 0, 0
    for receipt in receipts:
        gaps += receipt.step != step + 1
        step = receipt.step
        if receipt.kind == "update":
            logged[receipt.cluster, receipt.incarnation, receipt.sequence] += 1
    reported = {
        (cluster, incarnation, number) for cluster, (incarnation, numbers) in acknowledged.items() for number in numbers
    }
    return Counted(
        logged=logged.total(),
        lost=len(reported - logged.keys()),
        twice=sum(times - 1 for times in logged.values()),
        unasked=len(logged.keys() - reported),
        gaps=gaps,
    )


def count_in(state_dir: Path, spec_digest: str, acknowledged: Mapping[str, tuple[int, list[int]]]) -> Counted:
    """The same of the state directory of a learner that has ended, however it did.

    Raises:
        StateUnusable: its log or its receipts are damaged.
    """
    return count(read_receipts(state_dir, spec_digest), acknowledged)
