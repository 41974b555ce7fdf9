"""Least attained service first: jobs that have used few GPU-seconds go before those that have used many.

Every job runs at the size that it asked for; those of the first queue, with little attained service, before those of
the second, and by arrival within a queue. Preemptive, not elastic; needs neither durations nor speeds.
Source: Tiresias (Gu et al., NSDI 2019) §3.2, discretised two-dimensional LAS with two queues.
Deviation: no promotion of starved jobs (as by default there).
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.baselines.requested import RequestedSizes, serve
from policy_net.baselines.room import Room
from policy_net.domain import Allocation, ClusterState, Decision, Job, PolicyContext, Progress, Trigger


class LasPolicy:
    """Requested sizes, least attained GPU-seconds first."""

    name = "las"

    def __init__(self, queue_limits_gpu_seconds: tuple[float, ...] = (3250.0,)) -> None:
        self._limits = queue_limits_gpu_seconds
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Serve queue by queue; jobs that do not fit are passed over."""
        sizes = self._sizes.of(state)
        room = Room(state)
        order = sorted(range(len(sizes)), key=lambda index: self._queue_of(state.jobs[index], sizes[index]))
        serve(room, order, sizes)
        return room.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: attained service is part of the state."""

    def _queue_of(self, job: Job, size: Allocation) -> float:
        attained = job.run_seconds * size.workers
        if not self._limits:
            return attained
        return sum(attained >= limit for limit in self._limits)


def build_las(context: PolicyContext) -> LasPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `las`."""
    return LasPolicy()
