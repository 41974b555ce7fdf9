"""What the versions' scores on fixed replays say: a curve over versions that were scored on the same replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from global_learner.report.replays import CurvePoint
from policy_net.exchange.generated import fleet_pb2

_PREFERRED = "drf"
"""The baseline that most people know, and that the rest of the page compares with."""
_SCORED = "scored"


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores that may be compared.

    Attributes:
        baseline: the scheduler that they are over; empty without a score.
        over: version to its average JCT over the baseline's, geometric mean over the replays.
        points: the same by replay, oldest version first.
    """

    baseline: str
    over: dict[int, float]
    points: tuple[CurvePoint, ...]


def comparable_scores(cards: Sequence[fleet_pb2.VersionCard]) -> Scores:
    """Those on the newest scored version's replays; others were judged on other jobs."""
    scored = sorted((card for card in cards if card.score.state == _SCORED), key=lambda card: card.version)
    digest = scored[-1].score.replay_set_digest if scored else ""
    same = [card for card in scored if card.score.replay_set_digest == digest]
    baselines = set.intersection(*(set(card.score.over) for card in same)) if same else set()
    if not baselines:
        return Scores("", {}, ())
    baseline = _PREFERRED if _PREFERRED in baselines else min(baselines)
    points = [
        CurvePoint(
            card.version,
            card.head_step,
            {
                result.replay: result.avg_jct_seconds / result.baseline_jct_seconds[baseline]
                for result in card.score.replays
                if result.avg_jct_seconds > 0.0 and result.baseline_jct_seconds.get(baseline, 0.0) > 0.0
            },
        )
        for card in same
    ]
    return Scores(
        baseline,
        {card.version: card.score.over[baseline] for card in same},
        tuple(point for point in points if point.by),
    )
