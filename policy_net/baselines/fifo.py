"""FIFO scheduling: jobs wait for the size that they asked for, and keep it to their end.

The job at the head of the queue holds up all others until it fits. `fifo-backfill` lets a later job start when it fits
and an earlier one does not. Non-preemptive, not elastic; needs neither durations nor speeds.
Source: DL2 §6.1 (FIFO among the schedulers in use); the default of Slurm, YARN and Kubernetes queues. Backfilling:
Mu'alem and Feitelson (IEEE TPDS 2001).
Deviation: no reservation for the head of the queue, which would need durations (EASY); with backfilling, large jobs
may wait long.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.requested import RequestedSizes, is_running
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, Trigger


class FifoPolicy:
    """Requested sizes in order of arrival; with `backfill`, later jobs pass those that do not fit."""

    decides_at_once = True

    def __init__(self, name: str, *, backfill: bool = False) -> None:
        self.name = name
        self.backfill = backfill
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Keep what runs, then start waiting jobs by arrival."""
        sizes = self._sizes.of(state)
        free_capacity = DecisionCapacity(state)
        running = [is_running(job, size) for job, size in zip(state.jobs, sizes, strict=True)]
        # Nodes may have been lost: then those that arrived last go back into the queue.
        for index, runs in enumerate(running):
            if runs:
                free_capacity.change(index, sizes[index])
        for index, size in enumerate(sizes):
            if running[index] or not size.tasks:
                continue
            if not free_capacity.change(index, size) and not self.backfill:
                break
        return free_capacity.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: sizes are fixed."""


def build_fifo(context: PolicyContext) -> FifoPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `fifo`."""
    return FifoPolicy("fifo")


def build_fifo_backfill(context: PolicyContext) -> FifoPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `fifo-backfill`."""
    return FifoPolicy("fifo-backfill", backfill=True)
