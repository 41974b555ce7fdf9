"""Beliefs of the `set` policy about its cluster: how fast jobs train, how long jobs of unknown work take, and what it
costs to start one.

Legend: B bins.
One object, so that what keeps, compares or hands over beliefs about speed does so with both.
How long a job of undeclared work will take is learned from how long such jobs took on this cluster. "As much again as
it has trained" is right for the heaviest tails only. Where many jobs end at about the same length it is the opposite of
the truth: it sets aside those that are nearly done. So lengths are counted in bins of their logarithm, of jobs that
ended as well as of those that are still going on or were withdrawn, and a job's *rank* follows from them: the least
training that is to be expected for one completion, if one may stop at any time. Taking the lowest rank first is optimal
for mean completion times on one server.
Source: Gittins 1979; Aalto, Ayesta and Righter 2009 (the index in an M/G/1 queue); Tiresias (NSDI 2019) §3.2, which
has the histogram of ended jobs as a 2D-Gittins index. Deviation: censored jobs count, and a prior.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import ClusterState, Job, JobKind, Progress
from policy_net.errors import BadInput
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.restarts import Restarts
from policy_net.set_policy.unseen_types import measured_by_others
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs, hoped_for_speeds

Array = NDArray[np.float64]

BINS = 36
FIRST_EDGE_SECONDS = 10.0
EDGE_RATIO = 1.5
"""From ten seconds to half a year; a bin's jobs differ by half."""

PRIOR_JOBS = 8.0
"""The prior weighs as much as so many jobs in every bin that reached it."""
PRIOR_TAIL = 1.0
"""Exponent of the Pareto tail that is believed before jobs have ended: as much again as a job has trained (median)."""
PRIOR_FIRST_SHARE = 0.1
"""Share of jobs that are believed to end in the first bin."""

LIFETIMES_KEY = "(lifetimes)"
RESTARTS_KEY = "(restarts)"
"""Beside the job types of a snapshot; no model has brackets for a name."""

_EDGES = FIRST_EDGE_SECONDS * EDGE_RATIO ** np.arange(BINS)
_STARTS = np.concatenate(([0.0], _EDGES[:-1]))
_WIDTHS = _EDGES - _STARTS
_PRIOR_HAZARDS = np.array([PRIOR_FIRST_SHARE, *[1.0 - EDGE_RATIO**-PRIOR_TAIL] * (BINS - 1)])
_EDGE_LIST: list[float] = _EDGES.tolist()
_LATER = np.triu(np.ones((BINS, BINS), dtype=bool))


class SetBeliefs(GaussianProcessBeliefs):
    """Beliefs about speed, with `Lifetimes` of the jobs whose work nobody declared, and `Restarts`."""

    def __init__(self, priors: Sequence[SpeedStatistic] = ()) -> None:
        super().__init__(priors)
        self.lifetimes = Lifetimes()
        self.restarts = Restarts()

    def grid(self, job_type: str) -> Array:
        """See `Beliefs`; of a type of which nothing was seen what may be hoped for, so that its first jobs find out.

        The mean of the kind has its first job stay small beside an idle cluster.
        """
        process = self._types.get(job_type)
        if process is None or process.is_blank:
            return hoped_for_speeds(self._kinds.get(job_type, JobKind.PS))
        return super().grid(job_type)

    def expecting(self, state: ClusterState) -> ClusterState:
        """The state with what is expected to remain of the jobs of unknown work, and of types that nobody has seen; to
        be asked once a decision.

        The others stay as they are, and so does a state without such jobs.
        """
        self.introduce(state.jobs)
        present = {
            job.job_id: (_trained_samples(job), speed)
            for job in state.jobs
            if not job.work_known and (speed := self._reference_speed(job)) > 0.0
        }
        self.lifetimes.on_jobs_present(present)
        if present:
            state = replace(state, jobs=tuple(self._expected(job, present.get(job.job_id)) for job in state.jobs))
        if all(self.has_scale(job.job_type) for job in state.jobs):
            return state
        jobs = measured_by_others(state.jobs, self.has_scale, self._reference_speed)
        return state if jobs is None else replace(state, jobs=jobs)

    def observe(self, progress: Sequence[Progress]) -> None:
        """See `Beliefs`; and which jobs have ended, and what starts cost."""
        super().observe(progress)
        self.restarts.observe(progress)
        for entry in progress:
            if entry.finished:
                self.lifetimes.on_job_ended(entry.job_id, entry.samples)

    def snapshot(self) -> dict[str, object]:
        """See `Beliefs`."""
        return {
            **super().snapshot(),
            LIFETIMES_KEY: self.lifetimes.snapshot(),
            RESTARTS_KEY: self.restarts.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """See `Beliefs`; snapshots from before there were lifetimes, or restarts, have none."""
        lifetimes = Lifetimes.restored(snapshot[LIFETIMES_KEY]) if LIFETIMES_KEY in snapshot else Lifetimes()
        restarts = Restarts.restored(snapshot[RESTARTS_KEY]) if RESTARTS_KEY in snapshot else Restarts()
        of_types = {key: entry for key, entry in snapshot.items() if key not in (LIFETIMES_KEY, RESTARTS_KEY)}
        super().restore(of_types)
        self.lifetimes, self.restarts = lifetimes, restarts

    def digest(self) -> str:
        """See `Beliefs`."""
        return hashlib.sha256(
            f"{super().digest()}{self.lifetimes.digest()}{self.restarts.digest()}".encode()
        ).hexdigest()

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


class Lifetimes:
    """Lengths of jobs, and ranks by what a job has trained so far; lengths are seconds at a job's reference speed.

    Deterministic, also across a snapshot.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(BINS)
        self._passed = np.zeros(BINS)
        self._present: dict[str, tuple[float, float]] = {}
        self._ranks: Array | None = None

    def on_jobs_present(self, present: Mapping[str, tuple[float, float]]) -> None:
        """Learn which jobs there are now; who is missing without having ended was withdrawn.

        Args:
            present: by job id, the samples trained so far and the reference speed in samples/s, above 0.
        """
        for job_id in self._present.keys() - present.keys():
            self._passed[: _bin_of(_seconds(*self._present[job_id]))] += 1.0
        self._present = dict(present)
        self._ranks = None

    def on_job_ended(self, job_id: str, samples: float) -> None:
        """A job has ended, this many samples after it was last present; others than those are passed over."""
        entry = self._present.pop(job_id, None)
        if entry is None:
            return
        trained, reference_speed = entry
        index = _bin_of(_seconds(trained + samples, reference_speed))
        self._passed[:index] += 1.0
        self._ended[index] += 1.0
        self._ranks = None

    def rank_seconds(self, attained_seconds: float) -> float:
        """The least training to be expected per completion, by a job that has trained for this long; above 0."""
        if self._ranks is None:
            self._ranks = self._compute()
        index = _bin_of(attained_seconds)
        low = float(self._ranks[index])
        if index + 1 >= BINS:
            return low
        share = (attained_seconds - float(_STARTS[index])) / float(_WIDTHS[index])
        return low * math.exp(share * math.log(float(self._ranks[index + 1]) / low))

    def _compute(self) -> Array:
        """Ranks at the start of every bin, shape (B,)."""
        at_B = np.bincount([_bin_of(_seconds(*entry)) for entry in self._present.values()], minlength=BINS)
        passed = self._passed + (len(self._present) - np.cumsum(at_B))
        hazards_B = (self._ended + PRIOR_JOBS * _PRIOR_HAZARDS) / (self._ended + passed + PRIOR_JOBS)
        hazards_B[-1] = 1.0
        reached_B = np.concatenate(([1.0], np.cumprod(1.0 - hazards_B)[:-1]))
        # From the start of bin b on (row), up to the end of bin k (column): who ends, and what is trained until then.
        ends_BB = np.cumsum(np.where(_LATER, reached_B * hazards_B, 0.0), axis=1)
        trained_BB = np.cumsum(np.where(_LATER, reached_B * _WIDTHS * (1.0 - hazards_B / 2.0), 0.0), axis=1)
        ratios_BB = np.divide(trained_BB, ends_BB, out=np.full((BINS, BINS), np.inf), where=_LATER & (ends_BB > 0.0))
        ranks: Array = ratios_BB.min(axis=1)
        return ranks

    def digest(self) -> str:
        """SHA-256 over what a snapshot holds, hex."""
        total = hashlib.sha256(self._ended.tobytes() + self._passed.tobytes())
        total.update(repr(tuple(self._present.items())).encode())
        return total.hexdigest()

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values; `restored` is its inverse."""
        return {
            "ended": self._ended.tolist(),
            "passed": self._passed.tolist(),
            "present": [[job_id, *entry] for job_id, entry in self._present.items()],
        }

    @classmethod
    def restored(cls, entry: Any) -> Lifetimes:
        """Rebuild from `snapshot`'s value.

        Raises:
            BadInput: it is something else.
        """
        lifetimes = cls()
        try:
            lifetimes._ended = _counts(entry["ended"])
            lifetimes._passed = _counts(entry["passed"])
            lifetimes._present = {str(row[0]): _attained(row) for row in entry["present"]}
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a snapshot of lifetimes: {error!r}; delete it to start from the prior") from error
        return lifetimes


def _trained_samples(job: Job) -> float:
    """Of a job of unknown work, whose total is what it has trained and what it shows as remaining."""
    return max(job.total_epochs - job.remaining_epochs, 0.0) * job.samples_per_epoch


def _seconds(samples: float, reference_speed: float) -> float:
    return samples / reference_speed


def _bin_of(seconds: float) -> int:
    return min(bisect_left(_EDGE_LIST, seconds), BINS - 1)


def _counts(values: Any) -> Array:
    counts = np.array([float(value) for value in values])
    if counts.shape != (BINS,) or not (np.isfinite(counts).all() and (counts >= 0.0).all()):
        raise ValueError(f"{len(values)} bins that are no counts")
    return counts


def _attained(row: Sequence[Any]) -> tuple[float, float]:
    _, trained, reference_speed = row
    samples, speed = float(trained), float(reference_speed)
    if not (0.0 <= samples < math.inf and 0.0 < speed < math.inf):
        raise ValueError(f"impossible attained service {row}")
    return samples, speed
