"""Evidence of one cluster: what its pairs of blocks say of the candidate's loss, each less what was foreseen of it.

The outcome of a block is the mean number of jobs in the system while it counts: its sum over time is the sum of the
jobs' completion times, which no policy can talk its way out of. A pair's score is the candidate's loss in it, as a
share of what is usual; above 0 the candidate did worse.

Where queues last for days, most of what a version does to completion times comes after its block. With a twin, the
outcome has a price for that: the jobs that the twin has in the next blocks, under the incumbent, for what the block
left behind. Two equal versions leave the same behind, so a wrong price never tells them apart.

What a block was foreseen to come to (by the agent's twin, which replays the block under both versions with the arrivals
that really came) is subtracted from what it came to, and the foreseen difference of the versions is put in its place.
Whatever the foresight is worth, the order of a pair is a coin's, so the
score's mean is the mean loss: a bad twin costs time, and never makes the verdict wrong. How far it is trusted follows
from the pairs before (`trust`).
Source: Athey, Chetty, Imbens and Kang, "The surrogate index" (2019), for the price of what is left behind; control
variates, as in Robins, Rotnitzky and Zhao (JASA 1994) for randomised experiments (augmented inverse
probability weighting), here for pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TRUST_PAIRS = 4.0
"""Weight of the first trust of 1, in pairs."""
LEAST_TO_ENDURE = 4
"""Least clusters for a verdict in spite of one that lies: without it and the one left out, two remain."""


@dataclass(frozen=True, slots=True)
class TwinSays:
    """A block replayed by the agent's twin, with the arrivals that really came.

    Attributes:
        priced: mean jobs in the system over the whole block, as measured, and over the next blocks as the twin has them
            under the incumbent, for what the block left behind.
        incumbent, candidate: the same, all of it in the twin, under either version.
    """

    priced: float
    incumbent: float
    candidate: float


@dataclass(frozen=True, slots=True)
class SwitchbackBlock:
    """A cluster's report of a switchback block.

    Attributes:
        number: of the cluster's blocks, from 0 on; 2·n and 2·n + 1 are pair n.
        candidate: whether the candidate acted; else the incumbent.
        jobs: in the system on average while the block counted.
        usual_jobs: the same of the time before the rollout, above 0.
        jobs_at_start: in the system as the block began.
        arrivals: jobs submitted in it.
        guard_share: share of decisions that the guard changed.
        starved_jobs: that went without training for too long.
        latency_p99_seconds: of a decision.
    """

    number: int
    candidate: bool
    jobs: float
    usual_jobs: float
    jobs_at_start: float = 0.0
    arrivals: float = 0.0
    twin: TwinSays | None = None
    guard_share: float = 0.0
    starved_jobs: int = 0
    latency_p99_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Shadowed:
    """Sums of a cluster since it began to shadow.

    Attributes:
        decisions: computed by both versions.
        agreed: of them, both gave every job the same.
        failed: of them, the candidate gave none, or too late.
        incumbent_interventions, candidate_interventions: of the guard; the candidate's hypothetical.
        believed_gain: mean log of the candidate's believed progress over the incumbent's.
    """

    decisions: int
    agreed: int = 0
    failed: int = 0
    incumbent_interventions: int = 0
    candidate_interventions: int = 0
    incumbent_latency_p99_seconds: float = 0.0
    candidate_latency_p99_seconds: float = 0.0
    believed_gain: float = 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two blocks of one pair, in which both versions acted."""

    first: SwitchbackBlock
    second: SwitchbackBlock

    @property
    def incumbent(self) -> SwitchbackBlock:
        """The block in which the incumbent acted."""
        return self.second if self.first.candidate else self.first

    @property
    def candidate(self) -> SwitchbackBlock:
        """The block in which the candidate acted."""
        return self.first if self.first.candidate else self.second

    @property
    def usual_jobs(self) -> float:
        """Jobs that a loss is a share of; known before the pair's coin is thrown."""
        return (self.first.usual_jobs + self.first.jobs_at_start) / 2.0


def pairs_of(blocks: Sequence[SwitchbackBlock]) -> list[Pair]:
    """The whole pairs, in order; a block whose other half is missing, or of the same version, says nothing."""
    by_number = {block.number: block for block in blocks}
    pairs = []
    for number in sorted(by_number):
        second = by_number.get(number + 1)
        if number % 2 == 0 and second is not None and by_number[number].candidate != second.candidate:
            pairs.append(Pair(by_number[number], second))
    return pairs


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a pair.

    Attributes:
        loss: the candidate's, as a share of the usual jobs; above 0 it did worse.
        foreseen: loss foreseen for the pair, whichever version acted first; None without foresight.
    """

    loss: float
    foreseen: float | None = None


def scores_of(pairs: Sequence[Pair]) -> list[Score]:
    """The candidate's loss in each pair.

    Each score uses what was foreseen of its own blocks, and of earlier pairs only how good the foresight was.
    """
    scores = []
    learned = _Trust()
    for pair in pairs:
        first, second = pair.first.twin, pair.second.twin
        if first is None or second is None:
            scores.append(Score((pair.candidate.jobs - pair.incumbent.jobs) / pair.usual_jobs))
            continue
        of_candidate, of_incumbent = (first, second) if pair.first.candidate else (second, first)
        loss = (of_candidate.priced - of_incumbent.priced) / pair.usual_jobs
        foreseen = (of_candidate.candidate - of_incumbent.incumbent) / pair.usual_jobs
        by_version = (first.candidate - first.incumbent + second.candidate - second.incumbent) / (2.0 * pair.usual_jobs)
        scores.append(Score(learned.trust * by_version + loss - learned.trust * foreseen, by_version))
        learned.add(foreseen, loss)
    return scores


class _Trust:
    """Trust in the foresight: the slope of measured on foreseen differences, from 0 to 1."""

    def __init__(self) -> None:
        self._square = self._product = 0.0
        self._pairs = 0

    @property
    def trust(self) -> float:
        if self._square <= 0.0:
            return 1.0
        prior = TRUST_PAIRS * self._square / self._pairs
        return float(np.clip((self._product + prior) / (self._square + prior), 0.0, 1.0))

    def add(self, foreseen: float, loss: float) -> None:
        self._pairs += 1
        self._square += foreseen * foreseen
        self._product += foreseen * loss
