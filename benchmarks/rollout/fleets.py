"""Rollouts drawn from the pool: coins, days to begin with, and the rule of verdicts looking again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from benchmarks.rollout.pool import BlockRecord, ClusterRecord
from benchmarks.rollout.versions import NEGATED, PLANNER, WORSE_5, WORSE_10
from global_learner.rollout.verdicts.confidence import summed
from global_learner.rollout.verdicts.evidence import (
    Score,
    SwitchbackBlock,
    TwinSays,
    pairs_of,
    scores_of,
)
from global_learner.rollout.verdicts.verdict import ClusterEvidence, Rule, StageOutcome, alarms_of, judge, loss_signs

DAY_SECONDS = 86_400.0
POLL_DAYS = 1.0
"""How often the verdict is asked for; later on, where nothing changes fast, every twentieth of the time."""
_LATER = 0.05


@dataclass(frozen=True, slots=True)
class Contest:
    """Two versions: which recorded candidate acts in a cluster, and on which side.

    Attributes:
        candidates: by cluster's place in the fleet, where it is not `candidate`.
        swapped: the recorded candidate is the incumbent here, and the planner the candidate.
        swapped_at_random: a coin says so for every pair: the versions differ in every pair, and on average do not.
    """

    candidate: str
    swapped: bool = False
    swapped_at_random: bool = False
    candidates: tuple[tuple[int, str, bool], ...] = ()

    def of(self, place: int) -> tuple[str, bool]:
        """The recorded candidate in a cluster, and whether it is the incumbent."""
        return next(
            ((version, swapped) for at, version, swapped in self.candidates if at == place),
            (self.candidate, self.swapped),
        )


EQUAL = Contest(PLANNER)
EQUAL_ON_AVERAGE = Contest(WORSE_5, swapped_at_random=True)
MUCH_WORSE = Contest(NEGATED)
WORSE = Contest(WORSE_5)
BETTER = Contest(WORSE_5, swapped=True)
BAD_ON_TWO = (WORSE_10, False)


def bad_on_two(places: Sequence[int]) -> Contest:
    """5% better, and 10% worse in these two clusters."""
    return Contest(WORSE_5, swapped=True, candidates=tuple((place, *BAD_ON_TWO) for place in places))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rollout ended.

    Attributes:
        days: until then.
        pairs: of blocks that all clusters had brought by then.
        held: clusters that were worse off by themselves; from then on the incumbent acted there.
        extra_job_days: of all clusters, what the candidate's blocks cost in jobs in the system times days.
    """

    outcome: StageOutcome
    days: float
    pairs: int
    held: tuple[str, ...]
    extra_job_days: float


def run_rollout(
    records: Sequence[ClusterRecord],
    contest: Contest,
    seed: int,
    *,
    days: float,
    with_twin: bool,
    clusters: Sequence[int] | None = None,
    lie: float | None = None,
    rule: Rule | None = None,
) -> Ended:
    """One stage in which clusters alternate until there is a verdict, or its time is over.

    Args:
        clusters: the places of those that alternate; all unless given.
        lie: the loss that the first of them tells of every pair, and has its twin foresee, whatever happens there.
    """
    rule = rule or Rule()
    generator = np.random.default_rng(seed)
    taken = range(len(records)) if clusters is None else clusters
    drawn = {records[place].name: _draw(records[place], contest.of(place), contest, days, generator) for place in taken}
    scores = {name: one.scores(with_twin=with_twin) for name, one in drawn.items()}
    if lie is not None:
        liar = next(iter(scores))
        scores[liar] = [Score(lie, lie)] * len(scores[liar])
    known = {name: _evidence(own, rule) for name, own in scores.items()}
    held_at: dict[str, int] = {}
    at = 0.0
    while True:
        at = min(max(at + POLL_DAYS, at * (1.0 + _LATER)), days)
        seen = {name: known[name](held_at.get(name, one.pairs_by(at))) for name, one in drawn.items()}
        verdict = judge(seen, list(seen), rule, time_over=at >= days)
        for name in verdict.held:
            held_at.setdefault(name, drawn[name].pairs_by(at))
        if verdict.outcome is not StageOutcome.WAIT:
            extra = sum(one.extra_job_days(held_at.get(name, one.pairs_by(at))) for name, one in drawn.items())
            pairs = sum(own.loss.pairs for own in seen.values())
            return Ended(verdict.outcome, at, pairs, tuple(held_at), extra)


@dataclass(frozen=True)
class _Drawn:
    record: ClusterRecord
    blocks: list[SwitchbackBlock]
    extra: list[float]

    def pairs_by(self, day: float) -> int:
        return min(math.floor(day * DAY_SECONDS / (2.0 * self.record.block_seconds)), len(self.blocks) // 2)

    def scores(self, *, with_twin: bool) -> list[Score]:
        return scores_of(pairs_of(self.blocks if with_twin else [replace(block, twin=None) for block in self.blocks]))

    def extra_job_days(self, pairs: int) -> float:
        return sum(self.extra[:pairs]) * self.record.block_seconds / DAY_SECONDS


def _draw(
    record: ClusterRecord, side: tuple[str, bool], contest: Contest, days: float, generator: np.random.Generator
) -> _Drawn:
    """As many pairs as the days hold, from a day on that is drawn; behind the last recorded pair comes the first."""
    version, swapped = side
    rows, plain = record.pairs[version], record.pairs[PLANNER]
    start = int(generator.integers(len(rows)))
    blocks: list[SwitchbackBlock] = []
    extra: list[float] = []
    for pair in range(math.floor(days * DAY_SECONDS / (2.0 * record.block_seconds))):
        at = (start + pair) % len(rows)
        candidate_first = bool(generator.random() < 0.5)
        turned = swapped != (contest.swapped_at_random and bool(generator.random() < 0.5))
        # The recorded candidate acts in the first block if exactly one of the two is so.
        order = rows[at].candidate_first if candidate_first != turned else rows[at].incumbent_first
        for half, row in enumerate(order):
            blocks.append(_block(row, 2 * pair + half, candidate_first == (half == 0), record.mean_jobs, turned=turned))
        acted = 0 if candidate_first != turned else 1
        cost = order[acted].priced - plain[at].incumbent_first[acted].priced
        extra.append(-cost if turned else cost)
    return _Drawn(record, blocks, extra)


def _block(row: BlockRecord, number: int, candidate: bool, usual_jobs: float, *, turned: bool) -> SwitchbackBlock:
    sides = (row.twin_candidate, row.twin_incumbent) if turned else (row.twin_incumbent, row.twin_candidate)
    return SwitchbackBlock(
        number=number,
        candidate=candidate,
        jobs=row.jobs,
        usual_jobs=usual_jobs,
        jobs_at_start=row.jobs_at_start,
        arrivals=row.arrivals,
        twin=TwinSays(row.priced, *sides),
    )


def _evidence(scores: Sequence[Score], rule: Rule) -> Callable[[int], ClusterEvidence]:
    @lru_cache(maxsize=2)
    def of(pairs: int) -> ClusterEvidence:
        seen = scores[:pairs]
        alarms = alarms_of(seen, rule.alarm_loss)
        return ClusterEvidence(summed(seen), loss_signs(seen, rule.held_loss), alarms=alarms)

    return of


def shares(ended: Sequence[Ended]) -> Mapping[StageOutcome, float]:
    """How often each outcome came."""
    return {outcome: sum(one.outcome is outcome for one in ended) / len(ended) for outcome in StageOutcome}
