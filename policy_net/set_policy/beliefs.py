"""Beliefs of the `set` policy about its cluster: how fast jobs train, and how long jobs of unknown work take.

One object, so that what keeps, compares or hands over beliefs about speed does so with both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy_net.domain import ClusterState, Job, Progress
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.lifetimes import Lifetimes

LIFETIMES_KEY = "(lifetimes)"
"""Beside the job types of a snapshot; no model has brackets for a name."""


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
        present = {
            job.job_id: (_trained_samples(job), speed)
            for job in state.jobs
            if not job.work_known and (speed := self._reference_speed(job)) > 0.0
        }
        self.lifetimes.attend(present)
        if not present:
            return state
        return replace(state, jobs=tuple(self._expected(job, present.get(job.job_id)) for job in state.jobs))

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

    def digest(self) -> str:
        """See `Beliefs`."""
        return hashlib.sha256(f"{super().digest()}{self.lifetimes.digest()}".encode()).hexdigest()

    def _expected(self, job: Job, attained: tuple[float, float] | None) -> Job:
        if attained is None:
            return job
        trained, speed = attained
        epochs = self.lifetimes.rank_seconds(trained / speed) * speed / job.samples_per_epoch
        return replace(job, remaining_epochs=epochs)

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
