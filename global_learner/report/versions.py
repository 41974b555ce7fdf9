"""The cards of the published versions, newest first, as many as anybody reads; the rest is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from global_learner.report.scores import Scores
from policy_net.exchange.generated import fleet_pb2

MOST_VERSIONS = 50
"""Cards on the page beside the first version's and those in use: a fleet of a year has thousands."""


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
    wanted = {1, *assigned, *acting, *(card.version for card in ordered[:MOST_VERSIONS])}
    shown = [card for card in ordered if card.version in wanted]
    return [_row(card, sorted(assigned.get(card.version, [])), scores, ended) for card in shown], len(ordered) - len(
        shown
    )


def _row(card: fleet_pb2.VersionCard, assigned: list[str], scores: Scores, ended: bool) -> dict[str, Any]:
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
        "score_state": "not scored" if ended and card.score.state == "waiting" else card.score.state,
        "policy": card.details.policy,
        "origin": card.details.origin,
        "pinned": card.pinned,
    }
