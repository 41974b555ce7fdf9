"""Tetris: packing, and short jobs first; demand that aligns best with what is free, less the work that is left.

Every job runs at the size that it asked for. A job's score is the dot product of its demand and of what is free, both
as shares of the cluster, less ε times its remaining work: remaining time × its shares. ε is the mean alignment over the
mean remaining work, so that both count the same. Needs durations, and speeds, which it fits online. Preemptive, not
elastic.
Source: Tetris (Grandl et al., SIGCOMM 2014) §3.2 (alignment), §3.3.2 (combined with the shortest remaining work).
Deviation: the machine is the whole cluster, since placing is another layer's work here; a job's tasks start together,
as training needs. (DL2's published code weighs remaining work the other way round, which starves short jobs.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.decision_capacity import DecisionCapacity, RequestedSizes
from policy_net.baselines.needs import remaining_seconds
from policy_net.domain import Allocation, ClusterState, Decision, Progress, Trigger
from policy_net.throughput.parametric import OnlineFit

ROUNDING = 1e-9
"""Shares are sums of floats: what is free is counted as this much more."""


class TetrisPolicy:
    """Requested sizes by falling score, which changes with what is free."""

    name = "tetris"

    def __init__(self) -> None:
        self.beliefs = OnlineFit()
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Start the job of the highest score that fits (ties by arrival), until none does."""
        self.beliefs.introduce(state.jobs)
        sizes = self._sizes.of(state)
        free_capacity = DecisionCapacity(state)
        shares = _shares(state, sizes)
        seconds = np.array(
            [
                remaining_seconds(job, self.beliefs.grid(job.job_type), size)
                for job, size in zip(state.jobs, sizes, strict=True)
            ]
        )
        # A job without a size, or in an allocation that is believed dead, has no remaining time to speak of.
        waiting = np.isfinite(seconds)
        work = np.where(waiting, seconds, 0.0) * shares.sum(axis=1)
        if work.any():
            work *= shares[waiting].sum(axis=1).mean() / work[waiting].mean()
        free = np.ones(2)
        while waiting.any():
            # Not by a matrix product: rounded row by row, jobs that tie in everything would not tie.
            alignment = shares[:, 0] * free[0] + shares[:, 1] * free[1]
            scores = np.where(waiting, alignment - work, -np.inf)
            index = int(scores.argmax())
            waiting[index] = False
            if free_capacity.change(index, sizes[index]):
                free -= shares[index]
                waiting &= (shares <= free + ROUNDING).all(axis=1)
        return free_capacity.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        self.beliefs.observe(progress)


def _shares(state: ClusterState, sizes: Sequence[Allocation]) -> NDArray[np.float64]:
    """The shares of the cluster's CPU and GPUs that the jobs' sizes are, shape (jobs, 2)."""
    needed = [
        job.worker_demand * size.workers + job.ps_demand * size.ps for job, size in zip(state.jobs, sizes, strict=True)
    ]
    amounts = np.array([(one.cpu_milli, one.gpu) for one in needed], dtype=np.float64).reshape(len(needed), 2)
    total = state.total
    return np.asarray(amounts / np.maximum((total.cpu_milli, total.gpu), 1))
