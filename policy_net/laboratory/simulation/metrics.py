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
        unusable_allocations: times a job held tasks, but fewer than it trains with (workers without a PS, say): it
            made no progress.
        trimmed_tasks: tasks that a decision asked for and no node had room for.
        gpu_seconds: GPUs allocated, times the seconds to the next decision: what a job leaves at its end idles until
            then, and a pausing job holds its own. GPUs count until their node is lost.
        available_gpu_seconds: GPUs of the nodes that were up, over the time from zero to the end of the latest
            allocation.
        allocated_until_seconds: when the latest allocation ends.
        resizes: times a job went on with another number of tasks.
        resumes: times a job started again, after a suspension or the loss of a node.
        pause_seconds: time that jobs held their tasks and did not train because of a resize or a resumption, summed.
        lost_training_seconds: training that was lost with nodes, since the jobs' last checkpoints.
    """

    decisions: int = 0
    unusable_allocations: int = 0
    trimmed_tasks: int = 0
    gpu_seconds: float = 0.0
    available_gpu_seconds: float = 0.0
    allocated_until_seconds: float = 0.0
    resizes: int = 0
    resumes: int = 0
    pause_seconds: float = 0.0
    lost_training_seconds: float = 0.0

    def gpu_utilization(self) -> float | None:
        """Share of the available GPU-seconds that were allocated; None without GPUs, or before the first decision."""
        return self.share_of_gpu_time(self.gpu_seconds)

    def share_of_gpu_time(self, gpu_seconds: float) -> float | None:
        """So many GPU-seconds as a share of those that were available; None if none were."""
        return gpu_seconds / self.available_gpu_seconds if self.available_gpu_seconds else None

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
