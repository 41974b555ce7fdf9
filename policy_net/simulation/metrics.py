"""What a simulation is judged by: when every job ended, how much of the GPUs was held, what was wasted.

Job completion time (JCT) is end minus submission, so waiting counts.
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
        gpu_seconds: GPUs allocated, times the seconds to the next decision: what a job leaves at its end idles until
            then.
        allocated_until_seconds: when the latest allocation ends.
    """

    decisions: int = 0
    one_sided_allocations: int = 0
    trimmed_tasks: int = 0
    gpu_seconds: float = 0.0
    allocated_until_seconds: float = 0.0

    def gpu_utilization(self, gpus: int) -> float | None:
        """Share of the cluster's GPU-seconds that were allocated, from time zero to the end of the last allocation.

        None on a cluster without GPUs, or before the first decision.
        """
        return self.share_of_gpu_time(gpus, self.gpu_seconds)

    def share_of_gpu_time(self, gpus: int, gpu_seconds: float) -> float | None:
        """So many GPU-seconds as a share of all, from time zero to the end of the last allocation; None if none."""
        there_were = gpus * self.allocated_until_seconds
        return gpu_seconds / there_were if there_were else None

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
    """Summarise the completed jobs; the 99th percentile is linearly interpolated, the makespan counts from time 0."""
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
