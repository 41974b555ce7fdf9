"""Fair sharing, but nobody gets more than makes it faster: DRF up to the peak of the believed speed.

Needs speeds, which it fits online from the jobs' progress; needs no durations. Preemptive, elastic.
Source: DRF (Ghodsi et al., NSDI 2011) as in `drf.py`; the peak of a job's speed as the end of its growth as in Optimus
(EuroSys 2018) §4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.drf import most_workers, share_in_rounds
from policy_net.domain import ClusterState, Decision, Job, Progress, Trigger, speed_at
from policy_net.throughput.beliefs import Beliefs
from policy_net.throughput.parametric import OnlineFit

PeakKey = tuple[str, int, int, int, int]


class DrfPeakPolicy:
    """Round-robin of bundles by arrival, elastic up to each job's believed peak."""

    name = "drf-peak"

    def __init__(self, beliefs: Beliefs | None = None) -> None:
        self.beliefs: Beliefs = OnlineFit() if beliefs is None else beliefs
        self._peaks: dict[PeakKey, tuple[NDArray[np.float64], int]] = {}

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Allocate one bundle a round to every job that believes to become faster by it."""
        self.beliefs.introduce(state.jobs)
        return Decision(share_in_rounds(state, [self._peak_of(job) for job in state.jobs]))

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        self.beliefs.observe(progress)

    def _peak_of(self, job: Job) -> int:
        """The number of workers at which the job is believed to be fastest, along its bundles; 0 if it cannot train."""
        grid = self.beliefs.grid(job.job_type)
        key = (job.job_type, job.max_workers, job.max_ps, job.min_workers, job.min_ps)
        known = self._peaks.get(key)
        if known is None or known[0] is not grid:
            known = self._peaks[key] = (grid, bundle_peak(grid, job))
        return known[1]


def bundle_peak(grid: NDArray[np.float64], job: Job) -> int:
    """The workers of the fastest allocation on the way from the first grant by bundles; ties: the fewest."""
    first, most = max(job.min_workers, 1), most_workers(job)
    if not most:
        return 0
    by_bundle = int(job.kind.uses_ps)
    speeds = [speed_at(grid, by_bundle * more + job.min_ps, first + more) for more in range(most - first + 1)]
    return first + int(np.argmax(speeds))
