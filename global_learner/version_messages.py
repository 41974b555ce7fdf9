"""A version's card as it goes over the wire."""

from __future__ import annotations

from typing import Any

from global_learner.registry.registry import VersionCard
from policy_net.exchange.generated import fleet_pb2


def version_message(card: VersionCard, *, scoring: bool = True) -> fleet_pb2.VersionCard:
    """The card's message, field by field.

    Args:
        scoring: whether a version without a score will get one; otherwise scores are off.
    """
    details = card.details
    return fleet_pb2.VersionCard(
        version=card.version,
        head_step=card.head_step,
        parent=card.parent,
        digest=card.digest,
        created_unix_seconds=card.created_unix_seconds,
        size_bytes=card.size_bytes,
        updates=card.updates,
        contributions=card.contributions,
        staleness_p50=card.staleness_p50,
        spec_digest=card.spec_digest,
        details=fleet_pb2.VersionDetails(
            staleness_p90=details.staleness_p90,
            staleness_max=details.staleness_max,
            rejections=dict(details.rejections),
            aggregation=details.aggregation,
            origin=details.origin,
            policy=details.policy,
            prior_statistics=details.prior_statistics,
            notes=details.notes,
        ),
        score=_score_message(card.score, scoring),
        pinned=card.pinned,
        kept=card.kept,
        head_size_bytes=card.head_size_bytes,
    )


def _score_message(score: dict[str, Any] | None, scoring: bool) -> fleet_pb2.ReplayScore:
    if score is None:
        return fleet_pb2.ReplayScore(state="waiting" if scoring else "off")
    return fleet_pb2.ReplayScore(
        state=score["state"],
        reason=score.get("reason", ""),
        replay_set=score.get("replay_set", ""),
        replay_set_digest=score.get("replay_set_digest", ""),
        replays=[fleet_pb2.ReplayResult(**entry) for entry in score.get("replays", ())],
        over=score.get("over", {}),
        cpu_seconds=score.get("cpu_seconds", 0.0),
        scored_unix_seconds=score.get("scored_unix_seconds", 0.0),
        decisions=score.get("decisions", ()),
    )
