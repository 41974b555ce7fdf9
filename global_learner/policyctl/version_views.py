"""Output of `policyctl version`: plain values for `-o json`, tables for people."""

from __future__ import annotations

import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from foundation.text import parse_json
from global_learner.policyctl.views import Facts, moment, privacy_facts
from policy_net.exchange.generated import fleet_pb2

_KILOBYTE, _MEGABYTE = 1e3, 1e6


def version_facts(card: fleet_pb2.VersionCard) -> Facts:
    """A card as JSON shows it."""
    details = card.details
    return {
        "version": card.version,
        "name": f"v{card.version}",
        "head_step": card.head_step,
        "parent": card.parent,
        "steps_since_parent": card.updates,
        "digest": card.digest,
        "spec_digest": card.spec_digest,
        "policy": details.policy,
        "origin": details.origin,
        "created_unix_seconds": card.created_unix_seconds,
        "size_bytes": card.size_bytes,
        "head_size_bytes": card.head_size_bytes,
        "kept": card.kept,
        "pinned": card.pinned,
        "updates": card.updates,
        "contributions": dict(sorted(card.contributions.items())),
        "rejections": dict(sorted(details.rejections.items())),
        "staleness_p50": card.staleness_p50,
        "staleness_p90": details.staleness_p90,
        "staleness_max": details.staleness_max,
        "aggregation": details.aggregation,
        "prior_statistics": details.prior_statistics,
        "notes": details.notes,
        "privacy": privacy_facts(details.privacy) if details.HasField("privacy") else None,
        "score": score_facts(card.score),
    }


def score_facts(score: fleet_pb2.ReplayScore) -> Facts:
    """How a version did on the fixed replays, as JSON shows it."""
    return {
        "state": score.state or "waiting",
        "reason": score.reason,
        "replay_set": score.replay_set,
        "replay_set_digest": score.replay_set_digest,
        "over": {name: round(ratio, 6) for name, ratio in sorted(score.over.items())},
        "replays": [
            {
                "replay": entry.replay,
                "avg_jct_seconds": entry.avg_jct_seconds,
                "baseline_jct_seconds": dict(sorted(entry.baseline_jct_seconds.items())),
            }
            for entry in score.replays
        ],
        "cpu_seconds": score.cpu_seconds,
        "scored_unix_seconds": score.scored_unix_seconds or None,
    }


def shown_version_facts(reply: fleet_pb2.ShowVersionReply) -> Facts:
    """A card and its spec as JSON shows them."""
    return {**version_facts(reply.card), "spec": parse_json(reply.spec_json)}


def versions_table(versions: list[Facts]) -> Table:
    """All versions, oldest first; what their files take in the title."""
    kept = [card for card in versions if card["kept"]]
    files = sum(card["size_bytes"] + card["head_size_bytes"] for card in kept)
    table = Table(
        "",
        *(Column(name, no_wrap=True) for name in ("parent", "step")),
        "updates",
        "stale",
        Column("over drf", min_width=6),
        Column("from", min_width=8),
        Column("UTC", min_width=len("2026-01-31")),
        *(Column(name, no_wrap=True) for name in ("files", "digest")),
        title=f"{len(kept)} of {len(versions)} versions kept, {_size(files)}",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for card in versions:
        table.add_row(
            card["name"] + (" (pinned)" if card["pinned"] else ""),
            f"v{card['parent']}" if card["parent"] else "–",
            str(card["head_step"]),
            str(card["updates"]),
            f"{card['staleness_p50']:g}",
            _over_drf(card["score"]),
            ", ".join(f"{name} {count}" for name, count in card["contributions"].items()) or card["origin"],
            moment(card["created_unix_seconds"]),
            _size(card["size_bytes"] + card["head_size_bytes"]) if card["kept"] else "gone",
            card["digest"][:12],
        )
    return table


def _size(size_bytes: int) -> str:
    if size_bytes < _MEGABYTE:
        return f"{size_bytes / _KILOBYTE:.0f} kB"
    return f"{size_bytes / _MEGABYTE:.1f} MB"


def _over_drf(score: Facts) -> str:
    ratio = score["over"].get("drf")
    if ratio is None:
        return "no score" if score["state"] == "failed" else "–"
    return f"{ratio - 1.0:+.1%}"


def version_table(version: Facts) -> Table:
    """One version, a row a fact."""
    table = Table("fact", "value", title=version["name"])
    for key, value in version.items():
        if key == "score":
            _add_score(table, value, kept=version["kept"])
        else:
            table.add_row(key, _shown(key, value))
    return table


def _shown(key: str, value: Any) -> str:
    if key == "created_unix_seconds":
        return moment(value) + " UTC"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _add_score(table: Table, score: Facts, *, kept: bool) -> None:
    if score["state"] == "failed":
        table.add_row("score", f"no score: {score['reason']}")
        return
    if score["state"] != "scored":
        table.add_row("score", _unscored(score["state"], kept))
        return
    table.add_row("scored on", f"{score['replay_set']} ({score['replay_set_digest'][:12]})")
    for name, ratio in score["over"].items():
        table.add_row(f"average JCT over {name}", f"{ratio - 1.0:+.1%}")
    for entry in score["replays"]:
        baselines = ", ".join(f"{name} {jct:.0f}" for name, jct in entry["baseline_jct_seconds"].items())
        table.add_row(f"avg JCT, {entry['replay']}", f"{entry['avg_jct_seconds']:.0f} s ({baselines})")


def _unscored(state: str, kept: bool) -> str:
    if not kept:
        return "none: its file went before its turn"
    if state == "off":
        return "none: scores.enabled is off in the learner's configuration"
    return "none yet: it waits for its turn"


def pin_table(facts: Facts) -> Table:
    """What became of a pin."""
    table = Table("version", "pinned", "changed")
    table.add_row(facts["name"], "yes" if facts["pinned"] else "no", "yes" if facts["changed"] else "no, it was so")
    return table
