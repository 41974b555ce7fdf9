"""Section of events: what happened in the fleet and what somebody should look at, each with its moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policy_net.exchange.generated import fleet_pb2

MOST_EVENTS = 400
"""The newest ones; `policyctl audit` has everything."""
_ALERT, _EVENT = "alert", "event"


def fleet_events(
    clusters: Sequence[Mapping[str, Any]],
    cards: Sequence[fleet_pb2.VersionCard],
    rollouts: Sequence[Mapping[str, Any]],
    made_unix_seconds: float,
) -> dict[str, Any]:
    """Publications, what rollouts did, and alerts: verdicts against a version, and clusters that need somebody.

    Args:
        clusters: rows of the fleet.
        rollouts: cards of the newest rollouts.
        made_unix_seconds: when the learner told this. An alert on a lost cluster is of when it was heard last, another
            one of now.
    """
    found = [_event(card.created_unix_seconds, _published(card)) for card in cards]
    for rollout in rollouts:
        for entry in rollout["history"]:
            said = f"rollout {rollout['number']} of v{rollout['version']}: {entry['text']}"
            event = _event(entry["unix_seconds"], said, entry["actor"], entry["why"])
            found.append({**event, "kind": _ALERT if entry["alert"] else _EVENT})
    for row in clusters:
        if row["state"]["tone"] == "bad":
            silent = row["seconds_since_heard"] if row["state"]["word"] == "lost" else 0.0
            said = f"{row['cluster']}: {row['state']['detail']}"
            found.append({**_event(made_unix_seconds - silent, said), "kind": _ALERT})
    found.sort(key=lambda entry: (-entry["unix_seconds"], entry["kind"]))
    return {"entries": found[:MOST_EVENTS], "left_out": max(len(found) - MOST_EVENTS, 0)}


def _event(unix_seconds: float, text: str, actor: str | None = None, why: str = "") -> dict[str, Any]:
    return {"unix_seconds": unix_seconds, "kind": _EVENT, "text": text, "actor": actor, "why": why}


def _published(card: fleet_pb2.VersionCard) -> str:
    if not card.parent:
        return f"v{card.version} is there: {card.details.origin or 'the first version'}"
    learned = f"after {card.updates} updates" if card.updates else "without an update"
    return f"v{card.version} published, {learned}"
