"""Section of versions: their cards, newest first, and their scores, compared on the same fixed replays only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from global_learner.report.learning import CurvePoint
from global_learner.report.words import policy_label
from policy_net.exchange.generated import fleet_pb2

MOST_VERSIONS = 50
"""Cards on the page beside the first version's and those in use: a fleet of a year has thousands."""
_PREFERRED = "drf"
"""The baseline that most people know, and that the rest of the page compares with."""
_SCORED = "scored"


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores that may be compared.

    Attributes:
        baseline: name of the scheduler that they are over; empty without a score.
        over: version to its average JCT over the baseline's, geometric mean over the replays.
        points: the same by replay, oldest version first.
        of: kind of the points' series (cluster, replay), and their jobs.
        replayed: whether they are of replays after the run; the learner's own scores are then left out.
    """

    baseline: str
    over: dict[int, float]
    points: tuple[CurvePoint, ...]
    of: str = "fixed replay"
    replayed: bool = False


def replayed_scores(curve: Sequence[CurvePoint], baseline: str) -> Scores:
    """Scores on jobs that nobody had seen, which take the place of the learner's own."""
    over = {point.version: point.mean for point in curve}
    return Scores(baseline, over, tuple(curve), "cluster, on jobs that nobody had seen", replayed=True)


def comparable_scores(cards: Sequence[fleet_pb2.VersionCard]) -> Scores:
    """Scores on the newest scored version's replays; others are of other jobs."""
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
        for number, card in enumerate(same)
        if card.updates or not number  # a version that no update made is scored in the table, and is no learning
    ]
    return Scores(
        policy_label(baseline),
        {card.version: card.score.over[baseline] for card in same},
        tuple(point for point in points if point.by),
    )


def version_rows(
    cards: Sequence[fleet_pb2.VersionCard],
    views: Sequence[fleet_pb2.ClusterView],
    scores: Scores,
    ended: bool = False,
) -> tuple[list[dict[str, Any]], int]:
    """The cards to show, newest first, and how many were left out; a learner that has `ended` scores no version."""
    assigned: dict[int, list[str]] = {}
    for view in views:
        if view.incarnation:
            assigned.setdefault(view.assigned_version, []).append(view.cluster)
    ordered = sorted(cards, key=lambda card: -card.version)
    acting = {view.status.acting_version for view in views}
    called = {card.version for card in cards if card.aliases}
    wanted = {1, *assigned, *acting, *called, *(card.version for card in ordered[:MOST_VERSIONS])}
    shown = [card for card in ordered if card.version in wanted]
    rows = [_row(card, sorted(assigned.get(card.version, [])), scores, ended) for card in shown]
    return rows, len(ordered) - len(shown)


def taken_back_words(
    latest: int, cards: Sequence[fleet_pb2.VersionCard], judged: Mapping[int, Mapping[str, Any]]
) -> str:
    """Words beside the newest version if its latest rollout took it back, or is doing so; else none.

    Args:
        latest: the newest version's number; 0 where there is none.
        judged: card of each version's latest rollout.
    """
    back = {version for version, rollout in judged.items() if rollout["tone"] == "bad"}
    if latest not in back:
        return ""
    others = [card.version for card in cards if card.version not in back]
    newest_other = f"; v{max(others)} is the newest that was not" if others else ""
    return f"{judged[latest]['word']}{newest_other}"


def _row(card: fleet_pb2.VersionCard, assigned: list[str], scores: Scores, ended: bool) -> dict[str, Any]:
    state = "not scored" if ended and card.score.state == "waiting" else card.score.state
    return {
        "version": card.version,
        "head_step": card.head_step,
        "parent": card.parent,
        "updates": card.updates,
        "contributions": dict(sorted(card.contributions.items())),
        "staleness_p50": card.staleness_p50,
        "created_unix_seconds": card.created_unix_seconds,
        "size_bytes": card.size_bytes,
        "digest": card.digest,
        "assigned": assigned,
        "score": scores.over.get(card.version),
        "score_state": "not replayed" if scores.replayed else state,
        "policy": card.details.policy,
        "origin": card.details.origin,
        "pinned": card.pinned,
        "aliases": list(card.aliases),
    }
