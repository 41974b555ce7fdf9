"""What stays of the log when it is cut: one JSON line per applied update, without the gradient.

Together with the live log this names every update that was applied, in order: the audit that exactly-once is checked
against. Beyond a limit the oldest receipts go too; how many updates of which cluster they named stays.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from foundation.text import parse_json
from global_learner.errors import StateUnusable
from global_learner.update_log import AppliedUpdate, Kind, read_log

REMOVED_NAME = "removed.json"


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
    kind: str = "update"
    """Or `reset`: the head went back to version `sequence`, by the operator in `cluster`."""

    def to_line(self) -> str:
        """As it stands in a file."""
        return json.dumps(asdict(self)) + "\n"


def receipt_of(applied: AppliedUpdate) -> Receipt:
    """The receipt of an update."""
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
        kind="reset" if applied.kind is Kind.RESET else "update",
    )


@dataclass(frozen=True, slots=True)
class Removed:
    """What the receipts said that are kept no longer: updates per (cluster, incarnation), up to a step."""

    through_step: int = 0
    applied: Counter[tuple[str, int]] = field(default_factory=Counter)

    def to_json(self) -> str:
        """As it stands in its file."""
        applied = [[cluster, incarnation, count] for (cluster, incarnation), count in sorted(self.applied.items())]
        return json.dumps({"through_step": self.through_step, "applied": applied}) + "\n"


def receipt_files(folder: Path) -> list[Path]:
    """The files of receipts, oldest first."""
    return sorted(folder.glob("updates-*.jsonl"))


def read_receipt_file(path: Path, newest: bool) -> Iterator[Receipt]:
    """The receipts of one file; of the newest one without a line that a crash has torn.

    Raises:
        StateUnusable: a line is damaged.
    """
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    if newest and lines and not lines[-1].endswith("\n"):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            receipt = Receipt(**parse_json(line))
        except (ValueError, TypeError) as error:
            raise StateUnusable(f"{path}, line {number}: no receipt ({error})") from error
        yield receipt


def read_removed(folder: Path) -> Removed:
    """What a folder of receipts keeps no longer.

    Raises:
        StateUnusable: the file that says so is damaged.
    """
    path = folder / REMOVED_NAME
    try:
        content = parse_json(path.read_text())
        applied = Counter({(cluster, incarnation): count for cluster, incarnation, count in content["applied"]})
        return Removed(int(content["through_step"]), applied)
    except FileNotFoundError:
        return Removed()
    except (ValueError, TypeError, KeyError) as error:
        raise StateUnusable(f"{path}: damaged; restore the state directory from a copy") from error


def read_receipts(state_dir: Path, spec_digest: str) -> Iterator[Receipt]:
    """Every update whose receipt is kept, in order; of a learner that has ended.

    Raises:
        StateUnusable: a file is damaged.
    """
    folder = state_dir / "receipts"
    done = read_removed(folder).through_step
    files = receipt_files(folder)
    for path in files:
        for receipt in read_receipt_file(path, newest=path is files[-1]):
            if receipt.step > done:
                done = receipt.step
                yield receipt
    for applied in read_log(state_dir / "log", spec_digest):
        if applied.step > done:
            done = applied.step
            yield receipt_of(applied)


def audit(receipts: Iterator[Receipt], removed: Removed | None = None) -> Counter[tuple[str, int]]:
    """Check that steps follow each other and that no update is there twice; applied updates per (cluster, incarnation).

    Args:
        removed: what came before the first receipt, and was checked as long as it was kept.

    Raises:
        StateUnusable: an update is missing or was applied twice.
    """
    before = removed or Removed()
    seen: set[tuple[str, int, int]] = set()
    counts: Counter[tuple[str, int]] = Counter(before.applied)
    for expected, receipt in enumerate(receipts, start=before.through_step + 1):
        if receipt.step != expected:
            raise StateUnusable(f"update {expected} is missing from the log; the next one is {receipt.step}")
        if receipt.kind == "reset":
            continue
        name = (receipt.cluster, receipt.incarnation, receipt.sequence)
        if name in seen:
            raise StateUnusable(f"step {receipt.step}: {name} was applied twice")
        seen.add(name)
        counts[receipt.cluster, receipt.incarnation] += 1
    return counts
