"""Least attained service (LAS): jobs that have used few GPU-seconds go before those that have used many.

Every job runs at the size that it asked for. Jobs sink through four queues as they attain 1, 10 and 100 GPU-hours;
queue goes before queue, and by arrival within one. Preemptive, not elastic; needs neither durations nor speeds.
Source: Tiresias (Gu et al., NSDI 2019) §3.2, discretised two-dimensional LAS.
Deviation: four queues instead of two, since durations of real clusters span five orders of magnitude; no promotion of
starved jobs (off by default there). Without queues equal long jobs would take turns and all end late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from policy_net.baselines.decision_capacity import DecisionCapacity, RequestedSizes, serve
from policy_net.domain import Allocation, ClusterState, Decision, Job, Progress, Trigger

QUEUE_LIMITS_GPU_SECONDS = (3_600.0, 36_000.0, 360_000.0)
"""Attained service with which a job leaves the first, second and third queue."""


class LasPolicy:
    """Requested sizes, least attained GPU-seconds first."""

    name = "las"

    def __init__(self) -> None:
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Serve queue by queue; jobs that do not fit are passed over."""
        sizes = self._sizes.of(state)
        queues = [_queue_of(job, size) for job, size in zip(state.jobs, sizes, strict=True)]
        free_capacity = DecisionCapacity(state)
        serve(free_capacity, sorted(range(len(queues)), key=queues.__getitem__), sizes)
        return free_capacity.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: attained service is part of the state."""


def _queue_of(job: Job, size: Allocation) -> int:
    """The job's queue, from 0; a worker without a GPU counts as one GPU."""
    attained_gpu_seconds = job.run_seconds * size.workers * max(job.worker_demand.gpu, 1)
    return bisect_right(QUEUE_LIMITS_GPU_SECONDS, attained_gpu_seconds)
