"""What the `set` policy learns of a cluster while it runs: how fast jobs train, and how long jobs of unknown work take.

One object, so that what keeps, compares or hands over beliefs about speed does so with both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy_net.domain import ClusterState, Job, Progress
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.lifetimes import Lifetimes

LIFETIMES_KEY = "(lifetimes)"
"""Beside the job types of a snapshot; no model has brackets for a name."""

UNKNOWN_SPREAD = 1.0
"""By how much jobs of unknown work are told apart beyond their ranks: to the power of one plus this, about their
geometric mean. Ranks of jobs that have trained equally long are equal, so they differ less than what is really left."""


class SetBeliefs(GaussianProcessBeliefs):
    """Beliefs about speed, with `Lifetimes` of the jobs whose work nobody declared."""

    def __init__(self, priors: Sequence[SpeedStatistic] = ()) -> None:
        super().__init__(priors)
        self.lifetimes = Lifetimes()

    def expecting(self, state: ClusterState) -> ClusterState:
        """The state with what is expected to remain of the jobs of unknown work; to be asked once a decision.

        Jobs of known work stay as they are, and so does a state without others.
        """
        self.introduce(state.jobs)
        speeds = {job.job_id: self._reference_speed(job) for job in state.jobs if not job.work_known}
        present = {
            job.job_id: (_trained_samples(job), speeds[job.job_id])
            for job in state.jobs
            if speeds.get(job.job_id, 0.0) > 0.0
        }
        self.lifetimes.attend(present)
        if not present:
            return state
        ranks = {job_id: self.lifetimes.rank_seconds(trained / speed) for job_id, (trained, speed) in present.items()}
        middle = math.exp(sum(map(math.log, ranks.values())) / len(ranks))
        samples = {
            job_id: seconds * (seconds / middle) ** UNKNOWN_SPREAD * speeds[job_id] for job_id, seconds in ranks.items()
        }
        jobs = [
            replace(job, remaining_epochs=samples[job.job_id] / job.samples_per_epoch) if job.job_id in samples else job
            for job in state.jobs
        ]
        return replace(state, jobs=tuple(jobs))

    def observe(self, progress: Sequence[Progress]) -> None:
        """See `Beliefs`; and which jobs have ended."""
        super().observe(progress)
        for entry in progress:
            if entry.finished:
                self.lifetimes.end(entry.job_id, entry.samples)

    def snapshot(self) -> dict[str, object]:
        """See `Beliefs`."""
        return {**super().snapshot(), LIFETIMES_KEY: self.lifetimes.snapshot()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """See `Beliefs`; snapshots from before there were lifetimes have none."""
        lifetimes = Lifetimes.restored(snapshot[LIFETIMES_KEY]) if LIFETIMES_KEY in snapshot else Lifetimes()
        super().restore({key: entry for key, entry in snapshot.items() if key != LIFETIMES_KEY})
        self.lifetimes = lifetimes

    def _reference_speed(self, job: Job) -> float:
        """Believed samples/s at the size that the user asked for, or else at the best: lengths are measured in it."""
        grid = self.grid(job.job_type)
        asked = job.requested
        if asked.ps < grid.shape[0] and asked.workers < grid.shape[1] and grid[asked.ps, asked.workers] > 0.0:
            return float(grid[asked.ps, asked.workers])
        return float(grid.max())


def _trained_samples(job: Job) -> float:
    """Of a job of unknown work, whose total is what it has trained and what it shows as remaining."""
    return max(job.total_epochs - job.remaining_epochs, 0.0) * job.samples_per_epoch
