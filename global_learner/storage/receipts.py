"""Receipts, which stay of the log when it is cut: one JSON line per applied update, without the gradient.

Together with the live log they name every update that was applied, in order: the audit that exactly-once is checked
against. They are appended to few large files. Beyond a limit the oldest files go too; how many updates of which cluster
they named stays. A segment's receipts are on disk before its file is given up; a crash between the two writes them
again. All functions raise StateUnusable where what was written is damaged, and OSError where the disk refuses.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from foundation.files import PRIVATE, sync_folder, write_at, write_whole
from foundation.text import parse_json
from global_learner.errors import StateUnusable
from global_learner.storage.commits import WAY_OUT
from global_learner.storage.update_log import first_step, read_log, read_names, segments
from global_learner.storage.update_records import AppliedUpdate, UpdateKind

REMOVED_NAME = "removed.json"
FILES = 16
"""At the limit there are about so many files, so that a sixteenth of the receipts goes at once."""
MAX_RECEIPTS_BYTES = 256 << 20


_NAMES = {
    UpdateKind.RESET: "reset",
    UpdateKind.PASSED_UP: "passed-up",
    UpdateKind.HEAD_ABOVE: "head-above",
    UpdateKind.PUBLISHED: "published",
}


# Seals of a file of receipts: a line behind every group of lines, with the checksum of all that stands before it.
#
# A file begins with a seal of nothing. What stands behind the last seal was never finished: it is cut off before
# anything is added, and in any file but the newest it is damage. Files of earlier programs have no seals; they get one
# for all of it with the next group.

_SEAL = re.compile(rb'^\{"crc": (\d{1,10}), "through": (\d{1,20})\}\n', re.MULTILINE)
_TAIL_BYTES = 128
"""More than a seal takes."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where a file's last seal ends, the checksum of all bytes up to there, and the step that it names.

    That is None in a file of an earlier program, which has no seal: all whole lines count.
    """

    end: int
    checksum: int
    through: int | None


def is_seal(line: str) -> bool:
    """Whether a line is a seal and no receipt."""
    return line.startswith('{"crc"')


def seal(checksum: int, through: int) -> bytes:
    """The line behind bytes of this checksum, whose last receipt is of this step."""
    return f'{{"crc": {checksum}, "through": {through}}}\n'.encode()


def read_end(path: Path) -> Sealed:
    """Where to add to a file; only its end is read if that is a seal."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        tail = stream.read()
    found = list(_SEAL.finditer(tail))
    if found and found[-1].end() == len(tail):
        return _sealed(found[-1], size)
    return _last_seal(path.read_bytes())


def check_seals(path: Path, newest: bool) -> Sealed:
    """Compute every checksum of a file again; where its last seal ends."""
    data = path.read_bytes()
    checksum, at = 0, 0
    last: Sealed | None = None
    for found in _SEAL.finditer(data):
        checksum, at = zlib.crc32(data[at : found.start()], checksum), found.start()
        if checksum != int(found[1]):
            if newest and found.end() == len(data):
                # Of a group, perhaps the first, only the end reached the disk; `commits` knows if it was more.
                return last or Sealed(0, 0, 0)
            raise StateUnusable(
                f"{path}: damaged: what stands before byte {at} is not what was written (checksum {checksum:08x}, "
                f"expected {int(found[1]):08x}); {WAY_OUT}"
            )
        last = _sealed(found, found.end())
    if last is not None and last.end < len(data) and not newest:
        raise StateUnusable(f"{path}: damaged: nothing vouches for what stands behind byte {last.end}; {WAY_OUT}")
    return last or _last_seal(data)


def _sealed(found: re.Match[bytes], end: int) -> Sealed:
    return Sealed(end, zlib.crc32(found[0], int(found[1])), int(found[2]))


def _last_seal(data: bytes) -> Sealed:
    """The last seal wherever it is; without one, the end of the last whole line."""
    found = list(_SEAL.finditer(data))
    if found:
        return _sealed(found[-1], found[-1].end())
    if not data.startswith(b'{"step"'):  # its first group never reached the disk
        return Sealed(0, 0, 0)
    end = data.rfind(b"\n") + 1
    return Sealed(end, zlib.crc32(data[:end]), None)


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
    """Or `reset`: the head went back to version `sequence`, by the operator in `cluster`; in a region also `passed-up`
    and `head-above`, which are of no cluster."""

    def to_line(self) -> str:
        """As it stands in a file."""
        return json.dumps({name: getattr(self, name) for name in _FIELDS}) + "\n"  # `asdict` takes twice as long


_FIELDS = tuple(one.name for one in fields(Receipt))


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
        kind=_NAMES.get(applied.kind, "update"),
    )


@dataclass(frozen=True, slots=True)
class Removed:
    """What the receipts said that are kept no longer: updates per (cluster, incarnation), up to a step."""

    through_step: int = 0
    applied: Counter[tuple[str, int]] = field(default_factory=Counter)

    def to_json(self) -> str:
        """As it stands in its file."""
        applied = [[cluster, incarnation, count] for (cluster, incarnation), count in sorted(self.applied.items())]
        checksum = _checksum(self.through_step, applied)
        return json.dumps({"through_step": self.through_step, "applied": applied, "crc": checksum}) + "\n"


def receipt_files(folder: Path) -> list[Path]:
    """The files of receipts, oldest first."""
    return sorted(folder.glob("updates-*.jsonl"))


def read_receipt_file(path: Path, newest: bool) -> Iterator[Receipt]:
    """The receipts of one file; of the newest one without a line that a crash has torn."""
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    if newest and lines and not lines[-1].endswith("\n"):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if is_seal(line):
            continue
        try:
            receipt = Receipt(**parse_json(line))
        except (ValueError, TypeError) as error:
            raise StateUnusable(f"{path}, line {number}: no receipt ({error})") from error
        yield receipt


def read_removed(folder: Path) -> Removed:
    """What a folder of receipts keeps no longer."""
    path = folder / REMOVED_NAME
    try:
        content = parse_json(path.read_text())
        applied = Counter({(cluster, incarnation): count for cluster, incarnation, count in content["applied"]})
        found = Removed(int(content["through_step"]), applied)
        checksum = content.get("crc", _checksum(found.through_step, content["applied"]))
    except FileNotFoundError:
        return Removed()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateUnusable(f"{path}: damaged; restore the state directory from a copy") from error
    if checksum != _checksum(found.through_step, content["applied"]):
        raise StateUnusable(f"{path}: damaged: its checksum is another; restore the state directory from a copy")
    return found


def _checksum(through_step: int, applied: Sequence[Sequence[object]]) -> int:
    return zlib.crc32(json.dumps([through_step, applied]).encode())


def check_receipts(folder: Path) -> int:
    """See that the receipts are those that were written, without a gap; the step of the newest one, or 0."""
    through = read_removed(folder).through_step
    files = receipt_files(folder)
    for path in files:
        first = int(path.stem.removeprefix("updates-"))
        if first > through + 1:
            missing = f"update {first - 1}" if first == through + 2 else f"updates {through + 1} to {first - 1}"
            raise StateUnusable(f"{folder}: the receipts of {missing} are missing before {path.name}; {WAY_OUT}")
        last = check_seals(path, newest=path is files[-1]).through
        if last is None:
            for receipt in read_receipt_file(path, newest=path is files[-1]):
                last = receipt.step
        through = max(through, last or 0)
    return through


def drop_unfinished(folder: Path) -> None:
    """Cut off what a crash left behind the last sound seal, before anything is added."""
    for path in receipt_files(folder)[-1:]:
        end = check_seals(path, newest=True).end
        if end < path.stat().st_size:
            os.truncate(path, end)


def read_receipts(state_dir: Path, spec_digest: str) -> Iterator[Receipt]:
    """Every update whose receipt is kept, in order; of a learner that has ended."""
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
        if receipt.kind != "update":
            continue
        name = (receipt.cluster, receipt.incarnation, receipt.sequence)
        if name in seen:
            raise StateUnusable(f"step {receipt.step}: {name} was applied twice")
        seen.add(name)
        counts[receipt.cluster, receipt.incarnation] += 1
    return counts


def append_receipts(folder: Path, receipts: Sequence[Receipt], max_bytes: int) -> None:
    """Add receipts that follow the newest one; durable when this returns. Some that are there already do no harm.

    Raises:
        OSError: they could not be written; part of them may be there.
    """
    if not receipts:
        return
    data = "".join(receipt.to_line() for receipt in receipts).encode()
    files = receipt_files(folder)
    sealed = Sealed(0, 0, 0)
    if files:
        # A crash or a full disk may have left part of a group.
        sealed = read_end(files[-1])
        if sealed.end < files[-1].stat().st_size:
            os.truncate(files[-1], sealed.end)
    path = files[-1] if files else None
    if path is None or path.stat().st_size + len(data) > max_bytes // FILES:
        path, sealed = folder / f"updates-{receipts[0].step:020d}.jsonl", Sealed(0, 0, 0)
    if sealed.end == 0:
        first = seal(0, receipts[0].step - 1)
        data, sealed = first + data, Sealed(0, 0, 0)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        write_at(descriptor, sealed.end, [data, seal(zlib.crc32(data, sealed.checksum), receipts[-1].step)])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if path not in files:
        sync_folder(folder)
        _remove_oldest(folder, max_bytes)


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
    write_whole(folder / REMOVED_NAME, Removed(through, applied).to_json(), alone=True, mode=PRIVATE)
    for path in gone:
        path.unlink()


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
