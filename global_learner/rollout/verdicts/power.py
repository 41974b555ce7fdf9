"""Power of a stage: how often it would stop a version that is worse by so much, as far as its own pairs tell.

Rollouts are drawn from the scores that a real one brought, with their mean replaced: the noise is what these clusters
had, and the rule is asked after each round of pairs, as a learner asks it. So neither the rule's approximations nor the
clusters' noise has to be believed. What is assumed: pairs are exchangeable within a cluster, and a worse version's
scores vary as those of the real one did.
Source: Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from global_learner.rollout.verdicts.confidence import LEAST_PAIRS, summed
from global_learner.rollout.verdicts.evidence import Score
from global_learner.rollout.verdicts.verdict import ClusterEvidence, Rule, StageOutcome, alarms_of, judge, loss_signs

DRAWS = 200
"""Rollouts for each loss: a chance is right to some 3%, and it takes about a second of a core."""
LEAST_SCORES = 3
"""Of each cluster; fewer say nothing of how they vary."""
STOPS_USUALLY = 0.8
"""The usual power that a trial is planned for."""
_LOSSES = tuple(percent / 100.0 for percent in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200))


@dataclass(frozen=True, slots=True)
class Power:
    """What becomes of a version that is worse by `loss`, as shares of drawn rollouts.

    Attributes:
        loss: the mean of jobs more in the system, as a share.
        fails: it is taken back by a verdict.
        asks: there is no verdict in the stage's pairs: an operator is asked, and it goes no further by itself.
    """

    loss: float
    fails: float
    asks: float

    @property
    def stops(self) -> float:
        """It does not pass."""
        return self.fails + self.asks


def power_at(
    scores: Mapping[str, Sequence[Score]], rule: Rule, loss: float, pairs: int, *, seed: int = 0, draws: int = DRAWS
) -> Power | None:
    """The power at one loss; None where a cluster brought too few scores to draw from.

    Args:
        scores: of the clusters that alternated in the stage.
        loss: of the version in question, as a share.
        pairs: of each cluster, until an operator is asked.
    """
    if not scores or min(map(len, scores.values())) < LEAST_SCORES:
        return None
    noise = {cluster: _noise_of(found) for cluster, found in scores.items()}
    random = np.random.default_rng(seed)
    outcomes = [_outcome(noise, rule, loss, pairs, random) for _ in range(draws)]
    fails, passes = (outcomes.count(outcome) / draws for outcome in (StageOutcome.FAIL, StageOutcome.PASS))
    return Power(loss, fails, 1.0 - fails - passes)


def least_stopped(scores: Mapping[str, Sequence[Score]], rule: Rule, pairs: int, *, draws: int = DRAWS) -> Power | None:
    """The power at the least of some round losses that is usually stopped; None where none of them is."""
    for loss in _LOSSES:
        found = power_at(scores, rule, loss, pairs, draws=draws)
        if found is None or found.stops >= STOPS_USUALLY:
            return found
    return None


def _noise_of(scores: Sequence[Score]) -> list[Score]:
    """Scores without their mean, and as far apart as the many that they were drawn from."""
    mean = math.fsum(score.loss for score in scores) / len(scores)
    wider = math.sqrt(len(scores) / (len(scores) - 1))
    reported = [score.foreseen for score in scores if score.foreseen is not None]
    foreseen = math.fsum(reported) / len(reported) if reported else 0.0
    return [
        Score(wider * (score.loss - mean), None if score.foreseen is None else wider * (score.foreseen - foreseen))
        for score in scores
    ]


def _outcome(
    noise: Mapping[str, Sequence[Score]], rule: Rule, loss: float, pairs: int, random: np.random.Generator
) -> StageOutcome:
    drawn = {
        cluster: [_worse(found[at], loss) for at in random.integers(len(found), size=pairs)]
        for cluster, found in noise.items()
    }
    for count in range(math.ceil(LEAST_PAIRS / len(drawn)), pairs + 1):
        evidence = {
            cluster: ClusterEvidence(
                summed(found[:count]),
                loss_signs(found[:count], rule.held_loss),
                alarms=alarms_of(found[:count], rule.alarm_loss),
            )
            for cluster, found in drawn.items()
        }
        outcome = judge(evidence, tuple(drawn), rule, time_over=count == pairs).outcome
        if outcome is not StageOutcome.WAIT:
            return outcome
    return StageOutcome.INCONCLUSIVE


def _worse(score: Score, loss: float) -> Score:
    return Score(score.loss + loss, None if score.foreseen is None else score.foreseen + loss)
