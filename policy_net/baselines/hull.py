"""The worth of more tasks to a job type: its best splits into servers and workers, and their upper concave hull.

The hull skips splits that only pay off with more tasks still to come, so a greedy over its segments does not get stuck
where the next single task brings nothing.

Utility of a speed s is s^0.25 / 0.25, the form Σ −T^a / a with T = work / s and a = −0.25: between maximising
throughput (a = −1) and proportional fairness (a → 0). It shares a full cluster out among many jobs; jobs far from their
end do not hold back those near it. Work enters only as a factor work^−0.25 of every slope, so one hull serves all jobs
of a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import SUSPENDED, Allocation, Job, SpeedModel
from policy_net.throughput.beliefs import TypeCache

FAIRNESS_EXPONENT = 0.25
"""−a of the utility; measured best or near best among −1 … −0.1 where the cluster is neither empty nor jammed."""


@dataclass(frozen=True, slots=True)
class HullStep:
    """A step along the hull, from one split to a larger one; its slope is the gain in utility per task."""

    start: Allocation
    end: Allocation
    slope: float


@dataclass(frozen=True, slots=True)
class SplitHull:
    """The hull of one job type under given caps.

    Attributes:
        segments: in order, starting at 0/0, slopes falling; empty if the type cannot train at all.
        splits: fastest first, without any split that another beats with no more of either role: the best use of
            whatever capacity is left is the first that fits.
    """

    segments: tuple[HullStep, ...]
    splits: tuple[Allocation, ...]


Corner = tuple[int, float, Allocation]
"""Tasks, utility, split."""


def split_hull(grid: NDArray[np.float64], max_ps: int, max_workers: int, smallest: Allocation = SUSPENDED) -> SplitHull:
    """Compute the hull from speeds in samples/s, indexed [ps, workers]; no split below `smallest`."""
    speeds = grid[: max_ps + 1, : max_workers + 1].copy()
    speeds[: smallest.ps] = 0
    speeds[:, : smallest.workers] = 0
    splits = _unbeaten_splits(speeds)
    corners: list[Corner] = [(0, 0.0, SUSPENDED)]
    fastest_so_far = 0.0
    for speed, split in sorted(splits, key=lambda entry: (entry[1].tasks, -entry[0])):
        if speed <= fastest_so_far:
            continue
        fastest_so_far = speed
        corner = (split.tasks, speed**FAIRNESS_EXPONENT / FAIRNESS_EXPONENT, split)
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], corner):
            corners.pop()
        corners.append(corner)
    segments = tuple(HullStep(start[2], end[2], _slope(start, end)) for start, end in pairwise(corners))
    return SplitHull(segments, tuple(split for _, split in splits))


def _unbeaten_splits(speeds: NDArray[np.float64]) -> list[tuple[float, Allocation]]:
    """Speed and split, fastest first, of all splits that are faster than everything within them."""
    best_within = np.maximum.accumulate(np.maximum.accumulate(speeds, axis=0), axis=1)
    faster = speeds > 0
    faster[1:] &= speeds[1:] > best_within[:-1]
    faster[:, 1:] &= speeds[:, 1:] > best_within[:, :-1]
    splits = [(float(speeds[ps, workers]), Allocation(workers, ps)) for ps, workers in np.argwhere(faster).tolist()]
    return sorted(splits, key=lambda entry: (-entry[0], entry[1].tasks))


def _slope(start: Corner, end: Corner) -> float:
    return (end[1] - start[1]) / (end[0] - start[0])


def urgency(job: Job, work_exponent: float = FAIRNESS_EXPONENT) -> float:
    """Factor of a job's slopes: its remaining samples to the power of −b."""
    return float(remaining_samples(job) ** -work_exponent)


class HullCache(TypeCache[SplitHull]):
    """Hulls of a speed model's types."""

    def __init__(self, speeds: SpeedModel) -> None:
        super().__init__(speeds, split_hull)
