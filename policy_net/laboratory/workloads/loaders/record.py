"""Records that every loader yields: jobs as they were submitted, before any assumption is made; and their intake.

A job that held GPUs in several pieces (attempts, tasks or pods, one after the other or together) is one request: of the
most GPUs that it held at one time, and as long as its GPU-seconds over that. Malformed rows of a file are refused or
counted, and what is left out is counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.figures import duration
from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import shown
from policy_net.laboratory.workloads.workload import Skipped


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a job held of one node, and when."""

    node: str
    gpus: int
    start_seconds: float
    end_seconds: float
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """One job as it was recorded; times are on the recording's own clock. None or empty is what is not recorded.

    Attributes:
        number: where it stands: the line of a csv, the position (from 1) in a list.
        duration_seconds: how long it held its GPUs; above 0.
        gpus: how many it asked for, above 0; not yet bounded.
        start_seconds, end_seconds: its first start and its last end.
        shares: what it held of which node.
    """

    number: int
    job_id: str
    submit_seconds: float
    duration_seconds: float
    gpus: int
    model: str | None = None
    start_seconds: float | None = None
    end_seconds: float | None = None
    user: str = ""
    account: str = ""
    partition: str = ""
    shares: tuple[NodeShare, ...] = ()

    @property
    def wait_seconds(self) -> float | None:
        """From submission to the first start; None where that is not recorded, or lies before the submission."""
        return _from(self.submit_seconds, self.start_seconds)

    @property
    def jct_seconds(self) -> float | None:
        """From submission to the last end; None likewise."""
        return _from(self.submit_seconds, self.end_seconds)


def even_shares(
    nodes: Sequence[str], gpus: int, start_seconds: float, end_seconds: float, cpus: int = 0
) -> tuple[NodeShare, ...]:
    """What a job held of each of these nodes where only the sums are recorded: the same of each, rounded up."""
    count = len(nodes)
    return tuple(
        NodeShare(node, -(-gpus // count), start_seconds, max(start_seconds, end_seconds), -(-cpus // count))
        for node in nodes
    )


def _from(submitted: float, moment: float | None) -> float | None:
    """Clocks of two machines differ, and a job that was submitted again keeps its first start: no wait is negative."""
    return None if moment is None or moment < submitted else moment - submitted


@dataclass(frozen=True)
class Recording:
    """All usable jobs of a file.

    Attributes:
        records: at least one, by submit time; jobs of the same time stand as in the file.
        notes: what was left out and why, and what the format leaves to be assumed.
        unit: what `RecordedJob.number` counts.
        part: such as a virtual cluster; empty for all of the file.
    """

    path: Path
    records: Sequence[RecordedJob]
    notes: tuple[str, ...] = ()
    unit: str = "line"
    part: str = ""
    skipped: Skipped | None = None

    @property
    def name(self) -> str:
        """The file's name without its endings, and the part, which becomes the workload's."""
        stem = Path(self.path.name.removesuffix(".gz")).stem
        return f"{stem}@{self.part}" if self.part else stem

    def bad(self, record: RecordedJob, what: str, remedy: str) -> BadInput:
        """The error that says why a well-formed record still cannot be used."""
        return BadInput(f"{self.path}, {self.unit} {record.number}: job {record.job_id!r} {what}; {remedy}")


@dataclass(frozen=True, slots=True)
class AllocatedGpus:
    """GPUs held from start to end; fractions of a GPU are possible."""

    start_seconds: float
    end_seconds: float
    gpus: float


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """The job as one request."""

    gpus: float
    seconds: float


def as_one_request(pieces: Sequence[AllocatedGpus]) -> WholeRequest:
    """The request that stands for all pieces; their ends must not lie before their starts."""
    lasting = [piece for piece in pieces if piece.gpus > 0 and piece.end_seconds > piece.start_seconds]
    if not lasting:
        return WholeRequest(max((piece.gpus for piece in pieces), default=0.0), 0.0)
    changes = [(piece.start_seconds, piece.gpus) for piece in lasting]
    changes += [(piece.end_seconds, -piece.gpus) for piece in lasting]
    peak = gpus_now = 0.0
    for _, gpus in sorted(changes):  # at the same moment what ends comes first
        gpus_now += gpus
        peak = max(peak, gpus_now)
    gpu_seconds = sum(piece.gpus * (piece.end_seconds - piece.start_seconds) for piece in lasting)
    return WholeRequest(peak, gpu_seconds / peak)


NO_GPU = "no GPU asked for"
NO_TIME = "over in no time"
UNFINISHED = "not finished when the file was written"
NEVER_STARTED = "never started"
INCOMPLETE = "part of the job is malformed"

MALFORMED = "malformed, skipped:"
"""Begins every note on rows that could not be used, which a user should see in any case."""

SHORTEST_SECONDS = 1e-6
"""Below the resolution of any clock in these files; work of less could vanish in rounding."""

MOST_REASONS = 20
"""Reasons printed one by one; a file with more of them is of another format."""

_MOST_LISTED = 40
"""Virtual clusters named to a user who asked for one that is not there."""


APART_SECONDS, APART_SHARE = 2.0, 0.01
"""Two columns of one length differ by more than both: schedulers round, and write one a moment after the other."""


@dataclass(slots=True)
class _Compared:
    counts: str
    jobs: int = 0
    apart: int = 0
    most_seconds: float = 0.0

    def note(self, name: str, other: str) -> str:
        return (
            f"{name} is not {other} in {self.apart} of {self.jobs} jobs, by {duration(self.most_seconds)} at most:"
            f" {self.counts} counts"
        )


class LeftOut(Exception):
    """A row is well-formed but no job of the workload; the text is the reason."""


@dataclass
class Intake:
    """The jobs of one file, as they are read."""

    path: Path
    strict: bool
    id_field: str
    unit: str = "line"
    _records: list[RecordedJob] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _malformed: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, str] = field(default_factory=dict)
    _compared: dict[tuple[str, str], _Compared] = field(default_factory=dict)
    _cluster_of: dict[str, str] = field(default_factory=dict)
    _clusters: set[str] = field(default_factory=set)
    _early: int = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """The work on one row or job, which ends early where it is malformed or left out.

        Raises:
            MalformedRow: in strict reading.
        """
        try:
            yield
        except MalformedRow as error:
            self.on_malformed(error)
        except LeftOut as reason:
            self.leave_out(str(reason))

    def on_malformed(self, error: MalformedRow) -> None:
        """Count a malformed row; the first of its kind is kept as the example.

        Raises:
            MalformedRow: in strict reading.
        """
        if self.strict:
            raise error
        self._malformed[error.reason] += 1
        self._examples.setdefault(error.reason, str(error))

    def leave_out(self, reason: str) -> None:
        """Count something that is no job of the workload."""
        self._left_out[reason] += 1

    def compare(self, seconds: tuple[str, float], other: tuple[str, float | None], counts: str) -> None:
        """Compare two columns, or sums of them, that say one length of time; where they differ, a note says it.

        Args:
            seconds, other: what each is called, and its value; the latter may be unknown.
            counts: which of both the job's is.
        """
        (name, value), (other_name, other_value) = seconds, other
        if other_value is None:
            return
        found = self._compared.setdefault((name, other_name), _Compared(counts))
        found.jobs += 1
        apart = abs(value - other_value)
        if apart > max(APART_SECONDS, APART_SHARE * max(value, other_value)):
            found.apart += 1
            found.most_seconds = max(found.most_seconds, apart)

    def duplicate(self, job_id: str, number: int, first: int) -> MalformedRow:
        """The error of a job whose id stood in an earlier row."""
        remedy = "give every job its own id"
        return MalformedRow(
            f"{self.path}, {self.unit} {number}: {self.id_field} {job_id!r} stands in {self.unit} {first} too;"
            f" {remedy}",
            f"{self.id_field}: {remedy}",
        )

    def keep(self, record: RecordedJob, cluster: str = "") -> None:
        """Take a job; its id is its own within its cluster, where the file is of several.

        Raises:
            MalformedRow: its id was taken before.
            LeftOut: it holds no GPU, or for no time.
        """
        self._clusters.add(cluster)
        if self._cluster_of.setdefault(record.job_id, cluster) != cluster:
            record = replace(record, job_id=f"{cluster}/{record.job_id}")
        first = self._numbers.setdefault(record.job_id, record.number)
        if first != record.number:
            raise self.duplicate(record.job_id, record.number, first)
        if record.gpus <= 0:
            raise LeftOut(NO_GPU)
        if record.duration_seconds < SHORTEST_SECONDS:
            raise LeftOut(NO_TIME)
        self._early += record.start_seconds is not None and record.submit_seconds - record.start_seconds > APART_SECONDS
        self._records.append(record)

    def recording(self, *notes: str, hint: str = "", part: str | None = None) -> Recording:
        """Everything that was gathered, with the format's own notes and the counts.

        Args:
            hint: what may be wrong with a file that has no usable job.

        Raises:
            BadInput: not one job is usable.
        """
        counts = self._counts()
        if not self._records:
            found = "; ".join(counts) or f"there is no {self.unit}"
            raise BadInput(f"{self.path}: no usable job: {found}" + (f"; {hint}" if hint else ""))
        self._records.sort(key=lambda record: record.submit_seconds)
        return Recording(self.path, self._records, (*notes, *counts), self.unit, part or "", self._skipped())

    def _skipped(self) -> Skipped | None:
        if not self._malformed:
            return None
        count = sum(self._malformed.values())
        every = count + len(self._records) + sum(self._left_out.values())
        [(reason, alike)] = self._malformed.most_common(1)
        return Skipped(count, count / every, self.unit, self._examples[reason], alike)

    def _counts(self) -> list[str]:
        lines = [f"left out: {count} × {reason}" for reason, count in self._left_out.most_common(MOST_REASONS)]
        lines += [
            f"{MALFORMED} {count} × {reason}, the first: {self._examples[reason]}"
            for reason, count in self._malformed.most_common(MOST_REASONS)
        ]
        lines += [found.note(*names) for names, found in self._compared.items() if found.apart]
        if self._early:
            early = f"{self._early} of {len(self._records)} jobs"
            lines.append(f"{early} start before they are submitted: what they waited is unknown")
        if len(self._clusters) > 1:
            lines.append(f"jobs of {len(self._clusters)} clusters, replayed as those of one")
        rest = sum(self._malformed.values()) - sum(count for _, count in self._malformed.most_common(MOST_REASONS))
        if rest:
            lines.append(f"{MALFORMED} {rest} for other reasons")
        return lines


@dataclass
class Selection:
    """The rows with one value of a field, or all of them."""

    of_field: str
    value: str | None
    _others: set[str] = field(default_factory=set)
    _found: int = 0

    def includes(self, value: str) -> bool:
        """Whether a row with this value belongs to the part."""
        if self.value is None or value == self.value:
            self._found += 1
            return True
        if len(self._others) < _MOST_LISTED:
            self._others.add(value)
        return False

    def notes(self, path: Path) -> tuple[str, ...]:
        """What was selected.

        Raises:
            BadInput: no row has the value.
        """
        if self.value is None:
            return ()
        if not self._found:
            known = ", ".join(sorted(shown(value) for value in self._others))
            raise BadInput(f"{path}: no row with {self.of_field} {self.value!r}; it has {known or 'no such field'}")
        return (f"only {self.of_field} {self.value}",)
