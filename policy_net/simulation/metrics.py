"""What a simulation is judged by: when every job ended, how much of the GPUs was held, what was wasted.

Job completion time (JCT) is end minus submission, so waiting counts. GPU utilization is GPU-seconds held by workers
over the GPU-seconds of the cluster from time zero to the end of the last job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """When one job was submitted, first held a usable allocation, and ended; None for what has not happened."""

    job_id: str
    submit_seconds: float
    start_seconds: float | None
    end_seconds: float | None

    @property
    def jct_seconds(self) -> float | None:
        """Completion time, or None while unfinished."""
        return None if self.end_seconds is None else self.end_seconds - self.submit_seconds


@dataclass(slots=True)
class RunCounters:
    """What adds up over a simulation.

    Attributes:
        one_sided_allocations: times a job held workers without a PS or the other way round: it made no progress.
        trimmed_tasks: tasks that a decision asked for and no node had room for.
        gpu_seconds: GPUs held by workers, times the seconds they were held.
    """

    decisions: int = 0
    one_sided_allocations: int = 0
    trimmed_tasks: int = 0
    gpu_seconds: float = 0.0

    def to_json(self) -> dict[str, float]:
        """All counters by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JctSummary:
    """Completion times of the jobs that completed; None where none did."""

    completed: int
    avg_jct_seconds: float | None
    p99_jct_seconds: float | None
    max_jct_seconds: float | None
    makespan_seconds: float | None


def summarise(outcomes: Sequence[JobOutcome]) -> JctSummary:
    """Summarise the completed jobs; the 99th percentile is interpolated linearly, the makespan counts from time zero."""
    ends = [outcome.end_seconds for outcome in outcomes if outcome.end_seconds is not None]
    if not ends:
        return JctSummary(0, None, None, None, None)
    jcts = np.array([outcome.jct_seconds for outcome in outcomes if outcome.end_seconds is not None])
    return JctSummary(
        completed=len(ends),
        avg_jct_seconds=float(jcts.mean()),
        p99_jct_seconds=float(np.percentile(jcts, 99)),
        max_jct_seconds=float(jcts.max()),
        makespan_seconds=max(ends),
    )
