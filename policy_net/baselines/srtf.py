"""Shortest remaining time first (SRTF), elastic.

Jobs get the size that they asked for in order of their believed remaining time at that size; what is left over then
goes to the same jobs in the same order, each taking the fastest split for which there is capacity. Needs durations, and
speeds, which it fits online. Preemptive, elastic.
Source: SRTF as a scheduler for DL jobs in DL2 §6.1 and figure 18.
Deviation: DL2's published code sorts by the remaining *share* of a job's epochs and grows the first job to its caps
before the next gets anything. By time, and with the caps replaced by the believed peak, that order of growth was still
far worse on real clusters than giving everybody what they asked for first: past its request a job gains little from
what another cannot start without.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_net.baselines.decision_capacity import DecisionCapacity, RequestedSizes, serve
from policy_net.baselines.hull import HullCache
from policy_net.baselines.needs import remaining_seconds
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.throughput.beliefs import Beliefs
from policy_net.throughput.parametric import OnlineFit


class SrtfPolicy:
    """Requested sizes by remaining time, and the rest to those who are first."""

    name = "srtf"

    def __init__(self, beliefs: Beliefs | None = None) -> None:
        self.beliefs: Beliefs = OnlineFit() if beliefs is None else beliefs
        self._sizes = RequestedSizes()
        self._hulls = HullCache(self.beliefs)

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Serve jobs by believed remaining time (ties by arrival), first as requested, then elastically."""
        self.beliefs.introduce(state.jobs)
        sizes = self._sizes.of(state)
        seconds = [
            remaining_seconds(job, self.beliefs.grid(job.job_type), size)
            for job, size in zip(state.jobs, sizes, strict=True)
        ]
        order = sorted(range(len(seconds)), key=seconds.__getitem__)
        free_capacity = DecisionCapacity(state)
        serve(free_capacity, order, sizes)
        for index in order:
            free_capacity.grow(index, self._hulls.of(state.jobs[index]).splits)
        return free_capacity.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        self.beliefs.observe(progress)
