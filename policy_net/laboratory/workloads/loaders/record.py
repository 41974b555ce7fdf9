"""Records that every loader yields: jobs as they were submitted, before any assumption is made.

A job that held GPUs in several pieces (attempts, tasks or pods, one after the other or together) is one request: of the
most GPUs that it held at one time, and as long as its GPU-seconds over that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policy_net.errors import BadInput
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
    """One job as it was recorded; times are on the recording's own clock, whatever its zero.

    Attributes:
        number: where it stands: the line of a csv, the position (from 1) in a list.
        duration_seconds: how long it held its GPUs; above 0.
        gpus: how many it asked for, above 0; not yet bounded.
        model: what it trained, if the recording says so.
        start_seconds, end_seconds: its first start and its last end; None where it does not say them.
        user, account, partition: whose it was and where it was sent; empty where the recording does not say it.
        shares: what it held of which node; empty where the recording does not say it.
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
        part: which part of the file was taken, such as a virtual cluster; empty for all of it.
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
class HeldGpus:
    """GPUs held from start to end; fractions of a GPU are possible."""

    start_seconds: float
    end_seconds: float
    gpus: float


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """The job as one request."""

    gpus: float
    seconds: float


def as_one_request(pieces: Sequence[HeldGpus]) -> WholeRequest:
    """The request that stands for all pieces; their ends must not lie before their starts."""
    lasting = [piece for piece in pieces if piece.gpus > 0 and piece.end_seconds > piece.start_seconds]
    if not lasting:
        return WholeRequest(max((piece.gpus for piece in pieces), default=0.0), 0.0)
    changes = [(piece.start_seconds, piece.gpus) for piece in lasting]
    changes += [(piece.end_seconds, -piece.gpus) for piece in lasting]
    peak = held = 0.0
    for _, gpus in sorted(changes):  # at the same moment what ends comes first
        held += gpus
        peak = max(peak, held)
    gpu_seconds = sum(piece.gpus * (piece.end_seconds - piece.start_seconds) for piece in lasting)
    return WholeRequest(peak, gpu_seconds / peak)
