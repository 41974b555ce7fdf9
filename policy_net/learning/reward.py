"""Rewards of an interval: how well it went, which is what the learner climbs.

Source: DL2 §4.1 (`paper_reward`: Σ epochs trained / total epochs) and §6.5.2 (`progress_shares`: of each job alone).
Deviation: `slot_utility`, the default. Σ epochs/total adds up to the number of jobs under every policy, so
without discounting it cannot tell policies apart; the utility below can, and a busy hour does not look like a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.domain import ClusterState, Job, Progress, SpeedModel


@dataclass(frozen=True, slots=True)
class SlotUtility:
    """The slot-utility reward of an interval, and which job contributed what.

    Attributes:
        efficiency: shape (n,); a job's measured utility over its believed best alone; 0 for a job that waited.
        weight: shape (n,); a job's part in the believed best of all; sums to 1. The reward is weight · efficiency.
        planned: shape (n,); the efficiency that the policy's own choice, without chance, was believed to have: what a
            decision is compared with. None where it is not known.
    """

    job_ids: tuple[str, ...]
    efficiency: NDArray[np.float64]
    weight: NDArray[np.float64]
    planned: NDArray[np.float64] | None = None

    @property
    def reward(self) -> float:
        """About 0 (nothing runs) to 1 (everybody at the best); above 1 where beliefs are too low."""
        return float(self.weight @ self.efficiency)


def slot_utility(
    state: ClusterState, progress: Sequence[Progress], beliefs: SpeedModel, interval_seconds: float
) -> SlotUtility:
    """The measured utility rate of the interval over what its jobs would have had alone at their believed best.

    The utility of a job with `remaining` epochs that trains at `rate` epochs/s is (rate / remaining)^0.25. A job that
    finished within the interval counts with the rate at which it ran. The result is per unit of time: an interval of
    any length under the same allocation gives the same figure.

    Args:
        state: at the start of the interval; its jobs must come in the order of the policy's decision.
        beliefs: speeds as believed at the decision; never the simulator's truth.
        interval_seconds: the interval's length; a job that progressed for part of it counts in proportion, unless it
            finished.
    """
    best_speeds = np.array([_best_speed(job, beliefs) for job in state.jobs])
    return utility_over(state, progress, best_speeds, interval_seconds)


def utility_over(
    state: ClusterState,
    progress: Sequence[Progress],
    best_speeds: NDArray[np.float64],
    interval_seconds: float,
    exponent: float = FAIRNESS_EXPONENT,
    planned_speeds: NDArray[np.float64] | None = None,
) -> SlotUtility:
    """`slot_utility` over speeds that are known already.

    Args:
        best_speeds: of every job alone, as believed, in samples/s; shape (n,).
        planned_speeds: the same under the policy's own choice without chance; shape (n,).
    """
    by_job: Mapping[str, Progress] = {entry.job_id: entry for entry in progress}
    count = len(state.jobs)
    efficiency, best, planned = np.zeros(count), np.zeros(count), np.zeros(count)
    for index, job in enumerate(state.jobs):
        rate = float(best_speeds[index]) / job.samples_per_epoch
        if job.remaining_epochs <= 0.0 or rate <= 0.0:
            continue
        best[index] = (rate / job.remaining_epochs) ** exponent
        if planned_speeds is not None:
            planned[index] = (planned_speeds[index] / best_speeds[index]) ** exponent
        entry = by_job.get(job.job_id)
        if entry is None or entry.seconds <= 0.0 or entry.epochs <= 0.0:
            continue
        present = 1.0 if entry.finished else min(1.0, entry.seconds / interval_seconds)
        efficiency[index] = present * (entry.epochs / entry.seconds / rate) ** exponent
    total = best.sum()
    return SlotUtility(
        tuple(job.job_id for job in state.jobs),
        efficiency,
        best / total if total > 0.0 else np.zeros(count),
        None if planned_speeds is None else planned,
    )


def _best_speed(job: Job, beliefs: SpeedModel) -> float:
    return float(beliefs.grid(job.job_type)[: job.max_ps + 1, : job.max_workers + 1].max())


def paper_reward(state: ClusterState, progress: Sequence[Progress]) -> float:
    """Σ over jobs of epochs trained in the interval over the job's total epochs. Source: DL2 §4.1."""
    totals = {job.job_id: job.total_epochs for job in state.jobs}
    return sum(entry.epochs / totals[entry.job_id] for entry in progress if entry.job_id in totals)


def progress_shares(state: ClusterState, progress: Sequence[Progress]) -> SlotUtility:
    """The summands of `paper_reward`, job by job in the order of `state`; each has the weight 1."""
    epochs = {entry.job_id: entry.epochs for entry in progress}
    shares = np.array([epochs.get(job.job_id, 0.0) / job.total_epochs for job in state.jobs], dtype=np.float64)
    return SlotUtility(tuple(job.job_id for job in state.jobs), shares, np.ones(len(state.jobs)))
