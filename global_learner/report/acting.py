"""Section of what acts: each version that clusters act on or that a rollout judged, and how it fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from global_learner.report.versions import Scores
from global_learner.report.words import change
from policy_net.exchange.generated import fleet_pb2

MOST_VERSIONS = 12
"""Rows: those on which clusters act come first."""


def acting_rows(
    clusters: Sequence[Mapping[str, Any]],
    cards: Sequence[fleet_pb2.VersionCard],
    rollouts: Sequence[Mapping[str, Any]],
    scores: Scores,
) -> list[dict[str, Any]]:
    """A row a version: those that act, newest first, then the first version and those that a rollout judged.

    Args:
        clusters: rows of the fleet; of a learner that has ended what was assigned stands for what acts.
        rollouts: cards of the newest rollouts, newest first.
    """
    acts: dict[int, list[str]] = {}
    for row in clusters:
        if row["registered"]:
            version = row["assigned_version"] if row["acting_version"] is None else row["acting_version"]
            acts.setdefault(version, []).append(row["cluster"])
    judged: dict[int, Mapping[str, Any]] = {}
    for rollout in rollouts:
        judged.setdefault(rollout["version"], rollout)
    known = {card.version: card for card in cards}
    others = ({1} & known.keys() | judged.keys()) - acts.keys()
    ordered = [*sorted(acts, reverse=True), *sorted(others, reverse=True)]
    return [
        {
            "version": version,
            "from": _from(known.get(version)),
            "clusters": acts.get(version, []),
            "score": scores.over.get(version),
            "fared": _fared(scores, version),
            "rollout": None if (card := judged.get(version)) is None else _judged(card),
        }
        for version in ordered[:MOST_VERSIONS]
    ]


def _judged(card: Mapping[str, Any]) -> dict[str, str]:
    """How the version's rollout stands; of one that was taken back also why."""
    back = card["tone"] == "bad" and card["said"]
    return {"word": card["word"], "tone": card["tone"], "said": card["said"][0] if back else ""}


def _from(card: fleet_pb2.VersionCard | None) -> str:
    """Whose learning it is."""
    if card is None:
        return ""
    if card.contributions:
        return "learned by this fleet"
    return "put in by an operator" if card.parent else "what the fleet began with"


def _fared(scores: Scores, version: int) -> str:
    if version not in scores.over:
        return "not replayed" if scores.replayed else "not scored"
    words = change(scores.over[version])
    return f"{words} {'as' if words.startswith('as') else 'than'} {scores.baseline}"
