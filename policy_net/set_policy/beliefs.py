"""Beliefs of the `set` policy: speeds by size and place, lengths of jobs of unknown work, and costs of starts.

Legend: B bins.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import MAX_TASKS_PER_ROLE, ClusterState, Job, JobKind, Progress, speed_at
from policy_net.errors import BadInput
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.restarts import Restarts
from policy_net.set_policy.sessions import (
    BINS,
    PRIOR_HAZARDS,
    PRIOR_JOBS,
    STARTS,
    WIDTHS,
    Array,
    Sessions,
    SessionTerms,
    bin_of,
    counts_of,
)
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs, hoped_for_speeds
from policy_net.throughput.place_effects import PlaceBeliefs

LIFETIMES_KEY = "(lifetimes)"
RESTARTS_KEY = "(restarts)"
PLACES_KEY = "(places)"
"""Beside the job types of a snapshot; no model has brackets for a name."""

_LATER = np.triu(np.ones((BINS, BINS), dtype=bool))


# Work of types whose speed nobody has seen, measured by that of the others.
#
# A job's samples say nothing of how long it takes as long as nobody knows how many its type trains in a second, or
# even, on a real machine, how many an epoch has. Taken as they stand, with a speed that is made up, they put all jobs
# of a new type before all others, or behind: one that waits behind three known jobs is never seen. So the typical job
# of such a type is taken to be as long as the typical job of the types that are known; among themselves its jobs keep
# their proportions.
# Source: our own; the principle of indifference.


def measured_by_others(
    jobs: Sequence[Job], has_scale: Callable[[str], bool], reference_speed: Callable[[Job], float]
) -> tuple[Job, ...] | None:
    """The jobs, with as many samples per epoch as makes those of types without a scale as long as the others.

    Jobs of unknown work are not changed: what remains of them was a time, and not a number, before it was samples.

    Args:
        reference_speed: believed samples/s of a job, whether or not anything is known of it.

    Returns:
        None if nothing is to be changed, or there is nothing to measure by.
    """
    seconds_of_others: list[float] = []
    seconds_by_type: dict[str, list[float]] = {}
    for job in jobs:
        speed = reference_speed(job)
        if speed <= 0.0:
            continue
        seconds = remaining_samples(job) / speed
        if not job.work_known or has_scale(job.job_type):
            seconds_of_others.append(seconds)
        else:
            seconds_by_type.setdefault(job.job_type, []).append(seconds)
    if not seconds_of_others or not seconds_by_type:
        return None
    typical = median(seconds_of_others)
    factors = {job_type: typical / median(seconds) for job_type, seconds in seconds_by_type.items()}
    return tuple(
        replace(job, samples_per_epoch=job.samples_per_epoch * factors[job.job_type])
        if job.work_known and job.job_type in factors
        else job
        for job in jobs
    )


class SetBeliefs(GaussianProcessBeliefs):
    """Beliefs about speed, with `Lifetimes` of the jobs whose work nobody declared, `Restarts`, and `PlaceBeliefs`."""

    def __init__(self, priors: Sequence[SpeedStatistic] = ()) -> None:
        super().__init__(priors)
        self.lifetimes = Lifetimes()
        self.restarts = Restarts()
        self.places = PlaceBeliefs()
        self._medians: dict[str, tuple[Array, Array]] = {}
        self._session_terms: SessionTerms | None = None

    def use_sessions(self, terms: SessionTerms | None) -> None:
        """Believe, or no longer, that jobs that were submitted together are about as long as each other."""
        self._session_terms = terms
        self.lifetimes.use_sessions(terms)

    def grid(self, job_type: str) -> Array:
        """See `BeliefsByType`; of a type that nobody has seen what may be hoped for, so that its first jobs find out.

        The mean of the kind has its first job stay small beside an idle cluster.
        """
        process = self._types.get(job_type)
        if process is None or process.is_blank:
            return hoped_for_speeds(self._kinds.get(job_type, JobKind.PS))
        return super().grid(job_type)

    def expecting(self, state: ClusterState) -> ClusterState:
        """The state with the expected remaining work of jobs of unknown work, and of unseen types; once a decision.

        Jobs that a restart would cost more than a larger size gains cannot grow in it.
        """
        self.introduce(state.jobs)
        if state.placement is not None:
            self.places.introduce(state.jobs)
        present = {
            job.job_id: (_trained_samples(job), speed)
            for job in state.jobs
            if not job.work_known and (speed := self._reference_speed(job)) > 0.0
        }
        self.lifetimes.on_jobs_present(present, {job.job_id: job for job in state.jobs if job.job_id in present})
        if present:
            state = replace(state, jobs=tuple(self._expected(job, present.get(job.job_id)) for job in state.jobs))
        if not all(self.has_scale(job.job_type) for job in state.jobs):
            jobs = measured_by_others(state.jobs, self.has_scale, self._reference_speed)
            state = state if jobs is None else replace(state, jobs=jobs)
        return self.restarts.without_futile_growth(state, self)

    def expected_seconds(self, job: Job) -> float | None:
        """Expected remaining training of a present job of unknown work, in seconds at its requested size.

        None where its speed is unknown.
        """
        speed = self._reference_speed(job)
        return self.lifetimes.rank_seconds(_trained_samples(job) / speed, job.job_id) if speed > 0.0 else None

    def observe(self, progress: Sequence[Progress]) -> None:
        """See `BeliefsByType`; which jobs have ended, what starts cost, and what it does where workers lie."""
        if any(entry.places for entry in progress):
            super().observe([self.places.without_places(entry) for entry in progress])
            for entry in progress:
                if entry.places:
                    self.places.observe(entry, self._median_speed(entry))
        else:
            super().observe(progress)
        self.restarts.observe(progress)
        for entry in progress:
            if entry.finished:
                self.lifetimes.on_job_ended(entry.job_id, entry.samples)

    def snapshot(self) -> dict[str, object]:
        """See `BeliefsByType`."""
        found = {
            **super().snapshot(),
            LIFETIMES_KEY: self.lifetimes.snapshot(),
            RESTARTS_KEY: self.restarts.snapshot(),
        }
        return {**found, PLACES_KEY: self.places.snapshot()} if self.places.reports else found

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """See `BeliefsByType`; snapshots from before there were lifetimes, restarts or places have none."""
        lifetimes = Lifetimes.restored(snapshot[LIFETIMES_KEY]) if LIFETIMES_KEY in snapshot else Lifetimes()
        restarts = Restarts.restored(snapshot[RESTARTS_KEY]) if RESTARTS_KEY in snapshot else Restarts()
        places = PlaceBeliefs.restored(snapshot[PLACES_KEY]) if PLACES_KEY in snapshot else PlaceBeliefs()
        others = (LIFETIMES_KEY, RESTARTS_KEY, PLACES_KEY)
        super().restore({key: entry for key, entry in snapshot.items() if key not in others})
        self.lifetimes, self.restarts, self.places = lifetimes, restarts, places
        self._medians.clear()
        self.lifetimes.use_sessions(self._session_terms)

    def forget_jobs(self) -> None:
        """Believe the same of a cluster without jobs; those that come are new, also where their names are known."""
        self.lifetimes.forget_jobs()
        self.restarts.forget_jobs()

    def digest(self) -> str:
        """See `BeliefsByType`."""
        places = self.places.digest() if self.places.reports else ""
        return hashlib.sha256(
            f"{super().digest()}{self.lifetimes.digest()}{self.restarts.digest()}{places}".encode()
        ).hexdigest()

    def _median_speed(self, entry: Progress) -> float:
        """Believed samples/s of a report's size in the best place, without optimism; 0 where nothing is known of it."""
        if not self.has_scale(entry.job_type):
            return 0.0
        grid = self.grid(entry.job_type)
        known = self._medians.get(entry.job_type)
        if known is None or known[0] is not grid:
            known = self._medians[entry.job_type] = (grid, self.posterior(entry.job_type)[0])
        return speed_at(known[1], entry.allocation.ps, entry.allocation.workers)

    def _expected(self, job: Job, attained: tuple[float, float] | None) -> Job:
        if attained is None:
            return job
        trained, speed = attained
        epochs = self.lifetimes.rank_seconds(trained / speed, job.job_id) * speed / job.samples_per_epoch
        return replace(job, remaining_epochs=epochs)

    def _reference_speed(self, job: Job) -> float:
        """Believed samples/s at the size that the user asked for, or else at the best: lengths are measured in it.

        The best of the usual sizes, or of those that the job may have if these are more: what others of its type may
        have does not change it.
        """
        grid = self.grid(job.job_type)
        requested = speed_at(grid, job.requested.ps, job.requested.workers)
        return requested if requested > 0.0 else float(grid[:, : max(job.max_workers, MAX_TASKS_PER_ROLE) + 1].max())


class Lifetimes:
    """Lengths of jobs, and ranks by what a job has trained so far; lengths are seconds at a job's reference speed.

    Deterministic, also across a snapshot.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(BINS)
        self._passed = np.zeros(BINS)
        self._present: dict[str, tuple[float, float]] = {}
        self._ranks: Array | None = None
        self._ends: Array | None = None
        self._sessions: Sessions | None = None

    def use_sessions(self, terms: SessionTerms | None) -> None:
        """Rank jobs by others of their session too, or no longer."""
        if terms is None:
            self._sessions = None
        elif self._sessions is None:
            self._sessions = Sessions(terms)
        else:
            self._sessions.use(terms)

    def on_jobs_present(
        self, present: Mapping[str, tuple[float, float]], jobs: Mapping[str, Job] = MappingProxyType({})
    ) -> None:
        """Learn which jobs there are now; who is missing without having ended was withdrawn.

        Args:
            present: by job id, the samples trained so far and the reference speed in samples/s, above 0.
            jobs: the same jobs, where sessions matter.
        """
        for job_id in self._present.keys() - present.keys():
            self._passed[: bin_of(_seconds(*self._present[job_id]))] += 1.0
        self._present = dict(present)
        self._ranks = None
        if self._sessions is not None:
            bins = {job_id: bin_of(_seconds(*entry)) for job_id, entry in self._present.items()}
            self._ranks, ends_B, reached_B = self._compute()
            self._sessions.on_jobs_present(jobs, bins, ends_B, reached_B)

    def forget_jobs(self) -> None:
        """Know none of the jobs that are there, of which none ended or was withdrawn."""
        self._present = {}
        self._ranks = None
        if self._sessions is not None:
            self._sessions.forget_jobs()

    def on_job_ended(self, job_id: str, samples: float) -> None:
        """A job has ended, this many samples after it was last present; others than those are passed over."""
        entry = self._present.pop(job_id, None)
        if entry is None:
            return
        trained, reference_speed = entry
        index = bin_of(_seconds(trained + samples, reference_speed))
        self._passed[:index] += 1.0
        self._ended[index] += 1.0
        if self._sessions is not None:
            self._sessions.on_job_ended(job_id, index)
        self._ranks = None

    def rank_seconds(self, attained_seconds: float, job_id: str | None = None) -> float:
        """The least training to be expected per completion, by a job that has trained for this long; above 0.

        Args:
            job_id: of a job that is present, if others of its session are to tell.
        """
        if self._ranks is None:
            self._ranks, *_ = self._compute()
        index = bin_of(attained_seconds)
        own_ranks = None if self._sessions is None or job_id is None else self._sessions.ranks_of(job_id)
        low = float(self._ranks[index]) if own_ranks is None else own_ranks[0]
        if index + 1 >= BINS:
            return low
        high = float(self._ranks[index + 1]) if own_ranks is None else own_ranks[1]
        share = (attained_seconds - float(STARTS[index])) / float(WIDTHS[index])
        return low * math.exp(share * math.log(high / low))

    def session_mates(self, job_id: str) -> tuple[int, int] | None:
        """How many others of a job's session have ended, and how many go on; None where none says anything."""
        return None if self._sessions is None else self._sessions.mates_of(job_id)

    def _compute(self) -> tuple[Array, Array, Array]:
        """Ranks at the start of every bin, the probability of every length and of reaching it; shape (B,)."""
        at_B = np.bincount([bin_of(_seconds(*entry)) for entry in self._present.values()], minlength=BINS)
        passed = self._passed + (len(self._present) - np.cumsum(at_B))
        hazards_B = (self._ended + PRIOR_JOBS * PRIOR_HAZARDS) / (self._ended + passed + PRIOR_JOBS)
        hazards_B[-1] = 1.0
        reached_B = np.concatenate(([1.0], np.cumprod(1.0 - hazards_B)[:-1]))
        # From the start of bin b on (row), up to the end of bin k (column): who ends, and what is trained until then.
        ends_BB = np.cumsum(np.where(_LATER, reached_B * hazards_B, 0.0), axis=1)
        trained_BB = np.cumsum(np.where(_LATER, reached_B * WIDTHS * (1.0 - hazards_B / 2.0), 0.0), axis=1)
        ratios_BB = np.divide(trained_BB, ends_BB, out=np.full((BINS, BINS), np.inf), where=_LATER & (ends_BB > 0.0))
        ranks: Array = ratios_BB.min(axis=1)
        return ranks, reached_B * hazards_B, reached_B

    def digest(self) -> str:
        """SHA-256 over what a snapshot holds, hex."""
        total = hashlib.sha256(self._ended.tobytes() + self._passed.tobytes())
        total.update(repr(tuple(self._present.items())).encode())
        if self._sessions is not None:
            total.update(repr(self._sessions.snapshot()).encode())
        return total.hexdigest()

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values; `restored` is its inverse."""
        snapshot = {
            "ended": self._ended.tolist(),
            "passed": self._passed.tolist(),
            "present": [[job_id, *entry] for job_id, entry in self._present.items()],
        }
        return snapshot if self._sessions is None else {**snapshot, "sessions": self._sessions.snapshot()}

    @classmethod
    def restored(cls, entry: Any) -> Lifetimes:
        """Rebuild from `snapshot`'s value.

        Raises:
            BadInput: it is something else.
        """
        lifetimes = cls()
        try:
            lifetimes._ended = counts_of(entry["ended"])
            lifetimes._passed = counts_of(entry["passed"])
            lifetimes._present = {str(row[0]): _attained(row) for row in entry["present"]}
            if "sessions" in entry:
                lifetimes._sessions = Sessions.restored(entry["sessions"], SessionTerms())
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadInput(f"not a snapshot of lifetimes: {error!r}; delete it to start from the prior") from error
        return lifetimes


def _trained_samples(job: Job) -> float:
    """Of a job of unknown work, whose total is what it has trained and what it shows as remaining."""
    return max(job.total_epochs - job.remaining_epochs, 0.0) * job.samples_per_epoch


def _seconds(samples: float, reference_speed: float) -> float:
    return samples / reference_speed


def _attained(row: Sequence[Any]) -> tuple[float, float]:
    _, trained, reference_speed = row
    samples, speed = float(trained), float(reference_speed)
    if not (0.0 <= samples < math.inf and 0.0 < speed < math.inf):
        raise ValueError(f"impossible attained service {row}")
    return samples, speed
