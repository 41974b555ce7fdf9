"""Sessions: jobs of unknown work that were submitted together are about as long as each other.

Legend: B bins of length, L what a session's latent length may be (a bin, or nothing), N pairs of session and bin.
People and scripts submit the same thing several times. So jobs that ask for as many GPUs, submitted within a quarter of
an hour, are taken for one session. They share a latent length, or nothing, as where several people submit at once. What
it is follows from those of the session that have ended, and from how long the others have trained already. A job's own
length lies about the latent one with a lognormal scatter; with a small probability it is a stranger to its session.
That keeps many jobs that agree from being certain about the next one, and one other from deciding for all.
What is predicted for a job from all others of its session, and its own attained training, give its rank, as in
`beliefs.Lifetimes`, whose lengths of all jobs are where a session starts.
Source: our own; censored observations and the index as in `beliefs`. Sums are taken in the order in which the compiled
twin takes them.
Lengths are counted in bins, from ten seconds to half a year at a job's reference speed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Job
from policy_net.exchange.spec import SESSIONS, SetSpec, Weights, split_weights

Array = NDArray[np.float64]

BINS = 36
FIRST_EDGE_SECONDS = 10.0
EDGE_RATIO = 1.5
"""A bin's jobs differ by half."""

PRIOR_JOBS = 8.0
"""The prior weighs as much as so many jobs in every bin that reached it."""
PRIOR_TAIL = 1.0
"""Exponent of the Pareto tail that is believed before jobs have ended: as much again as a job has trained (median)."""
PRIOR_FIRST_SHARE = 0.1
"""Share of jobs that are believed to end in the first bin."""

EDGES: Array = np.array(FIRST_EDGE_SECONDS * EDGE_RATIO ** np.arange(BINS), dtype=np.float64)
STARTS: Array = np.concatenate(([0.0], EDGES[:-1]))
WIDTHS: Array = EDGES - STARTS
PRIOR_HAZARDS: Array = np.array([PRIOR_FIRST_SHARE, *[1.0 - EDGE_RATIO**-PRIOR_TAIL] * (BINS - 1)])
_EDGE_LIST: list[float] = EDGES.tolist()


def bin_of(seconds: float) -> int:
    """The bin of a length; the last one has no end."""
    return min(bisect_left(_EDGE_LIST, seconds), BINS - 1)


def counts_of(values: Any) -> Array:
    """Counts of all bins, as a snapshot has them, shape (B,).

    Raises:
        ValueError: they are no counts.
    """
    counts = np.array([float(value) for value in values])
    if counts.shape != (BINS,) or not (np.isfinite(counts).all() and (counts >= 0.0).all()):
        raise ValueError(f"{len(values)} bins that are no counts")
    return counts


LONGEST_SECONDS = 900.0
"""From a session's first job to its last. A chain, each job so long after the one before, would tie days of them."""
USUAL_SCATTER = 0.223
"""Deviation of the log of a length about its session's: a factor of a quarter."""
USUAL_STRANGERS = 0.2
USUAL_UNRELATED = 0.3
LEAST_SHARE, MOST_SHARE = 0.01, 0.9
LARGEST_LOG_CHANGE = 3.0
_BROAD_HAZARD = 1.0 - 1.0 / EDGE_RATIO
"""Of a stranger, in every bin: as much again as it has trained (median)."""


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """The numbers of a policy: logs of factors on scatter, share of strangers, and share of sessions that are none."""

    scatter: float = 0.0
    strangers: float = 0.0
    unrelated: float = 0.0

    @classmethod
    def of(cls, spec: SetSpec, weights: Weights) -> SessionTerms | None:
        """Those among the weights of a policy; None where its spec has none.

        Raises:
            SpecMismatch: the weights are of another length than the spec's.
        """
        found = split_weights(weights, spec).get(SESSIONS)
        return None if found is None else cls(*(float(value) for value in found))

    @property
    def flat(self) -> tuple[float, float, float]:
        """In the order of the weights."""
        return (self.scatter, self.strangers, self.unrelated)

    @property
    def stranger_share(self) -> float:
        """The probability with which a job is a stranger to its session."""
        return _share(USUAL_STRANGERS, self.strangers)

    @property
    def unrelated_share(self) -> float:
        """The probability with which a session has nothing in common."""
        return _share(USUAL_UNRELATED, self.unrelated)


class _Likelihoods:
    """What one job says of its session's latent length, and the other way round; shape (B, B), latent in rows."""

    # What a session without anything in common says follows from all jobs, and is added at each decision.

    def __init__(self, terms: SessionTerms) -> None:
        self.stranger_share = share = terms.stranger_share
        self.unrelated_share = terms.unrelated_share
        width = math.log(EDGE_RATIO)
        scatter = USUAL_SCATTER * _factor(terms.scatter)
        deviation = math.sqrt(scatter * scatter + width * width / 12.0)
        below = [[_normal((edge - latent + 0.5) * width / deviation) for edge in range(BINS)] for latent in range(BINS)]
        ends = np.array(
            [
                [(row[at] if at < BINS - 1 else 1.0) - (row[at - 1] if at else 0.0) for at in range(BINS)]
                for row in below
            ]
        )
        reached = np.array([[1.0 - (row[at - 1] if at else 0.0) for at in range(BINS)] for row in below])
        broad_reached = [(1.0 - _BROAD_HAZARD) ** at for at in range(BINS)]
        broad_ends = [one * (_BROAD_HAZARD if at < BINS - 1 else 1.0) for at, one in enumerate(broad_reached)]
        self.ends_BB: Array = ends
        self.log_ended_BB = _logs((1.0 - share) * ends + share * np.array(broad_ends))
        self.log_reached_BB = _logs((1.0 - share) * reached + share * np.array(broad_reached))


@dataclass(slots=True)
class _Session:
    """One session: what its jobs asked for, when the first came, and who has left it."""

    gpus: int
    first_submit_seconds: float
    ended: Array = field(default_factory=lambda: np.zeros(BINS))
    withdrawn: Array = field(default_factory=lambda: np.zeros(BINS))


class Sessions:
    """The sessions of a cluster; deterministic, also across a snapshot."""

    def __init__(self, terms: SessionTerms) -> None:
        self._terms = terms
        self._likelihoods = _Likelihoods(terms)
        self._sessions: list[_Session] = []
        self._of: dict[str, tuple[_Session, int]] = {}
        self._ranks: dict[str, tuple[float, float]] = {}

    def use(self, terms: SessionTerms) -> None:
        """Go on with other numbers."""
        if terms != self._terms:
            self._terms, self._likelihoods = terms, _Likelihoods(terms)

    def on_jobs_present(
        self, jobs: Mapping[str, Job], bins: Mapping[str, int], ends_B: Array, reached_B: Array
    ) -> None:
        """Learn which jobs of unknown work there are, in the order of arrival, and rank them.

        `bins` are those of what each has trained; `ends_B` and `reached_B` the probabilities that any job ends in a
        bin, and that it trains up to it.
        """
        for job_id in self._of.keys() - jobs.keys():
            session, at = self._of.pop(job_id)
            session.withdrawn[at] += 1.0
        self._of = {
            job_id: (self._of[job_id][0] if job_id in self._of else self._joined(job), bins[job_id])
            for job_id, job in jobs.items()
        }
        self._sessions = self._living()
        self._rank(ends_B, reached_B)

    def forget_jobs(self) -> None:
        """Know none of the jobs that are there, of which none ended or was withdrawn."""
        self._of = {}
        self._ranks = {}

    def on_job_ended(self, job_id: str, at: int) -> None:
        """A job has ended in this bin; others than those that were present are passed over."""
        entry = self._of.pop(job_id, None)
        if entry is not None:
            entry[0].ended[at] += 1.0

    def ranks_of(self, job_id: str) -> tuple[float, float] | None:
        """Ranks in seconds at the start of the bin of what a job has trained, and of the next.

        None where no other job of its session says anything.
        """
        return self._ranks.get(job_id)

    def mates_of(self, job_id: str) -> tuple[int, int] | None:
        """How many others of its session have ended, and how many go on or were withdrawn.

        None where no other job of its session says anything.
        """
        if job_id not in self._ranks:
            return None
        session = self._of[job_id][0]
        there = sum(other is session for other, _ in self._of.values()) - 1
        return int(session.ended.sum()), there + int(session.withdrawn.sum())

    def _joined(self, job: Job) -> _Session:
        gpus = job.requested.workers * max(job.worker_demand.gpu, 1)
        submit = job.submit_time_seconds
        latest = next((one for one in reversed(self._sessions) if one.gpus == gpus), None)
        if latest is None or abs(submit - latest.first_submit_seconds) > LONGEST_SECONDS:
            latest = _Session(gpus, submit)
            self._sessions.append(latest)
        return latest

    def _living(self) -> list[_Session]:
        """Those with jobs that are there, and those that one may still join."""
        latest = {session.gpus: id(session) for session in self._sessions}
        kept = {id(session) for session, _ in self._of.values()} | set(latest.values())
        return [session for session in self._sessions if id(session) in kept]

    def _rank(self, ends_B: Array, reached_B: Array) -> None:
        gathered: dict[int, tuple[Array, Array]] = {}
        for session, at in self._of.values():
            gathered.setdefault(id(session), (session.ended, session.withdrawn.copy()))[1][at] += 1.0
        # In the first bin nobody says anything yet.
        ends_and_censored = {
            key: float(ended.sum() + censored[1:].sum()) for key, (ended, censored) in gathered.items()
        }
        pair_of = {
            job_id: (id(session), at)
            for job_id, (session, at) in self._of.items()
            if ends_and_censored[id(session)] - (at > 0) > 0.0
        }
        pairs = dict.fromkeys(pair_of.values())
        ranks = self._ranks_of_pairs([(*gathered[key], at) for key, at in pairs], ends_B, reached_B) if pairs else []
        by_pair = dict(zip(pairs, ranks, strict=True))
        self._ranks = {job_id: by_pair[pair] for job_id, pair in pair_of.items()}

    def _ranks_of_pairs(
        self, pairs: list[tuple[Array, Array, int]], ends_B: Array, reached_B: Array
    ) -> list[tuple[float, float]]:
        known = self._likelihoods
        ended_NB = np.array([ended for ended, _, _ in pairs])
        censored_NB = np.array([censored for _, censored, _ in pairs])
        at_N = np.array([at for _, _, at in pairs])
        log_ends_B = np.log(ends_B)
        log_ended_LB = np.vstack((known.log_ended_BB, log_ends_B))
        log_reached_LB = np.vstack((known.log_reached_BB, np.log(reached_B)))
        first_L = np.append(log_ends_B + math.log(1.0 - known.unrelated_share), math.log(known.unrelated_share))
        log_NL = np.tile(first_L, (len(pairs), 1))
        for at in np.flatnonzero(ended_NB.any(axis=0)).tolist():
            log_NL += ended_NB[:, at, None] * log_ended_LB[:, at]
        for at in np.flatnonzero(censored_NB.any(axis=0)).tolist():
            log_NL += censored_NB[:, at, None] * log_reached_LB[:, at]
        log_NL -= log_reached_LB.T[at_N]  # a job's own training counts below
        weight_NL = np.exp(log_NL - log_NL.max(axis=1, keepdims=True))
        weight_NL /= np.cumsum(weight_NL, axis=1)[:, -1:]
        shared_NB = np.zeros((len(pairs), BINS))
        for latent in range(BINS):
            shared_NB += weight_NL[:, latent, None] * known.ends_BB[latent]
        shared_NB += weight_NL[:, BINS, None] * ends_B
        predicted_NB = (1.0 - known.stranger_share) * shared_NB + known.stranger_share * ends_B
        reached_NB = np.cumsum(predicted_NB[:, ::-1], axis=1)[:, ::-1]
        trained_NB = (reached_NB - predicted_NB / 2.0) * WIDTHS
        low_N, high_N = (_least(trained_NB, predicted_NB, at_N + more) for more in (0, 1))
        return list(zip(low_N.tolist(), high_N.tolist(), strict=True))

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values; `restored` is its inverse."""
        living = self._living()
        numbers = {id(session): number for number, session in enumerate(living)}
        return {
            "sessions": [
                [one.gpus, one.first_submit_seconds, one.ended.tolist(), one.withdrawn.tolist()] for one in living
            ],
            "of": [[job_id, numbers[id(session)], at] for job_id, (session, at) in self._of.items()],
        }

    @classmethod
    def restored(cls, entry: Any, terms: SessionTerms) -> Sessions:
        """Rebuild from `snapshot`'s value.

        Raises:
            KeyError, IndexError, TypeError, ValueError: it is something else.
        """
        sessions = cls(terms)
        for gpus, submit, ended, withdrawn in entry["sessions"]:
            if not math.isfinite(submit):
                raise ValueError(f"a session whose first job came at {submit} s")
            sessions._sessions.append(_Session(int(gpus), float(submit), counts_of(ended), counts_of(withdrawn)))
        for job_id, number, at in entry["of"]:
            if not (int(number) >= 0 and 0 <= int(at) < BINS):
                raise ValueError(f"job {job_id!r} of session {number}, in bin {at}")
            sessions._of[str(job_id)] = (sessions._sessions[int(number)], int(at))
        return sessions


def _least(trained_NB: Array, ends_NB: Array, from_N: Any) -> Array:
    """The least of what is trained over who ends, from a bin on up to any later one, shape (N,)."""
    later_NB = np.arange(BINS) >= np.minimum(from_N, BINS - 1)[:, None]
    trained = np.cumsum(np.where(later_NB, trained_NB, 0.0), axis=1)
    ends = np.cumsum(np.where(later_NB, ends_NB, 0.0), axis=1)
    ratios = np.divide(trained, ends, out=np.full_like(trained, np.inf), where=later_NB & (ends > 0.0))
    least: Array = ratios.min(axis=1)
    return least


def _share(usual: float, log_factor: float) -> float:
    return min(max(usual * _factor(log_factor), LEAST_SHARE), MOST_SHARE)


def _normal(deviations: float) -> float:
    return 0.5 * (1.0 + math.erf(deviations / math.sqrt(2.0)))


def _logs(values: Array) -> Array:
    return np.array([[math.log(value) for value in row] for row in values.tolist()])


def _factor(log_factor: float) -> float:
    return math.exp(min(max(log_factor, -LARGEST_LOG_CHANGE), LARGEST_LOG_CHANGE))
