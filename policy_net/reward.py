"""How well an interval went: what the learner climbs.

Source: DL2 §4.1 (`paper_reward`: Σ epochs trained / total epochs).
Deviation: `slot_utility_reward`, the default. Σ epochs/total adds up to the number of jobs under every policy, so
without discounting it cannot tell policies apart; the utility below can, and a busy hour does not look like a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy_net.domain import ClusterState, Job, Progress, SpeedModel

UTILITY_EXPONENT = 0.25
"""Utility of a job is (rate / remaining work)^0.25, about proportional fairness; the exponent of `marginal`."""


def slot_utility_reward(
    state: ClusterState, progress: Sequence[Progress], beliefs: SpeedModel, interval_seconds: float
) -> float:
    """The measured utility rate of the interval over what its jobs would have had alone at their believed best.

    The utility of a job with `remaining` epochs that trains at `rate` epochs/s is (rate / remaining)^0.25. A job that
    finished within the interval counts with the rate at which it ran. The result is per unit of time: an interval of
    any length under the same allocation gives the same figure.

    Args:
        state: at the start of the interval.
        progress: of the interval.
        beliefs: speeds as believed at the decision; never the simulator's truth.
        interval_seconds: the interval's length; a job that progressed for part of it counts in proportion, unless it
            finished.

    Returns:
        About 0 (nothing runs) to 1 (everybody at the best); above 1 where beliefs are too low.
    """
    by_job: Mapping[str, Progress] = {entry.job_id: entry for entry in progress}
    measured = 0.0
    best = 0.0
    for job in state.jobs:
        if job.remaining_epochs <= 0.0:
            continue
        best += _utility(_best_rate(job, beliefs), job.remaining_epochs)
        entry = by_job.get(job.job_id)
        if entry is None or entry.seconds <= 0.0 or entry.epochs <= 0.0:
            continue
        present = 1.0 if entry.finished else min(1.0, entry.seconds / interval_seconds)
        measured += present * _utility(entry.epochs / entry.seconds, job.remaining_epochs)
    return measured / best if best > 0.0 else 0.0


def _utility(epochs_per_second: float, remaining_epochs: float) -> float:
    return float((epochs_per_second / remaining_epochs) ** UTILITY_EXPONENT)


def _best_rate(job: Job, beliefs: SpeedModel) -> float:
    speeds = beliefs.grid(job.job_type)[: job.max_ps + 1, : job.max_workers + 1]
    return float(speeds.max()) / job.samples_per_epoch


def paper_reward(state: ClusterState, progress: Sequence[Progress]) -> float:
    """Σ over jobs of epochs trained in the interval over the job's total epochs. Source: DL2 §4.1."""
    totals = {job.job_id: job.total_epochs for job in state.jobs}
    return sum(entry.epochs / totals[entry.job_id] for entry in progress if entry.job_id in totals)
