"""Difference of two versions: their cards, specs, weights, beliefs, scores, and decisions at fixed states."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from rich.table import Table

from global_learner.policyctl.version_views import version_facts
from global_learner.policyctl.views import Facts, moment
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights, split_weights

_MOVED = 0.01
"""A believed speed that changes by less than a hundredth stays what it is."""
_TYPES_SHOWN = 10

_CARD = (
    "head_step",
    "parent",
    "origin",
    "policy",
    "aggregation",
    "updates",
    "contributions",
    "rejections",
    "staleness_p50",
    "staleness_p90",
    "staleness_max",
    "prior_statistics",
    "digest",
    "spec_digest",
    "size_bytes",
    "created_unix_seconds",
)


def difference(
    first: fleet_pb2.ShowVersionReply,
    second: fleet_pb2.ShowVersionReply,
    first_file: PolicyFile | None,
    second_file: PolicyFile | None,
) -> Facts:
    """What differs from the first version to the second; files are None where they are no longer kept."""
    one, other = version_facts(first.card), version_facts(second.card)
    return {
        "from": one["name"],
        "to": other["name"],
        "card": _changed({key: one[key] for key in _CARD}, {key: other[key] for key in _CARD}),
        "spec": _changed(json.loads(first.spec_json), json.loads(second.spec_json)),
        "weights": _weights(first_file, second_file),
        "beliefs": belief_moves(first_file, second_file),
        "scores": _scores(first.card.score, second.card.score),
        "decisions": _decisions(first.card.score, second.card.score),
    }


def _changed(one: Facts, other: Facts) -> Facts:
    names = [*one, *(name for name in other if name not in one)]
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _weights(one: PolicyFile | None, other: PolicyFile | None) -> Facts:
    """Distances by layer and of all weights; none where the layers are not the same ones."""
    if one is None or other is None:
        return {"reason": "a policy file is no longer kept"}
    if one.spec.layout() != other.spec.layout():
        return {"reason": "the specs have other layers"}
    parts, others = split_weights(one.weights, one.spec), split_weights(other.weights, other.spec)
    layers = {name: distances(parts[name].ravel(), others[name].ravel()) for name in parts}
    return {"all": distances(one.weights, other.weights), "layers": layers}


def distances(one: Weights, other: Weights) -> dict[str, float | None]:
    """Euclidean distance, largest single difference, and cosine; no cosine where one of the two is zero."""
    before, after = one.astype(np.float64), other.astype(np.float64)
    step = after - before
    norms = float(np.linalg.norm(before) * np.linalg.norm(after))
    return {
        "l2": float(np.linalg.norm(step)),
        "max": float(np.abs(step).max(initial=0.0)),
        "cosine": min(1.0, max(-1.0, float(before @ after) / norms)) if norms else None,
    }


def belief_moves(one: PolicyFile | None, other: PolicyFile | None) -> Facts:
    """How much believed speeds changed, by job type, those that moved furthest first.

    `median_factor` and `largest_factor` are the later speed over the earlier one, over the splits that both have.
    """
    if one is None or other is None:
        return {"reason": "a policy file is no longer kept"}
    before, after = _log_speeds(one), _log_speeds(other)
    types: list[tuple[float, Facts]] = []
    for job_type in sorted({key[0] for key in (*before, *after)}):
        gaps = np.array([after[key] - before[key] for key in before if key[0] == job_type and key in after])
        furthest = float(gaps[np.abs(gaps).argmax()]) if len(gaps) else 0.0
        facts: Facts = {
            "job_type": job_type,
            "splits": [sum(key[0] == job_type for key in side) for side in (before, after)],
            "moved": int((np.abs(gaps) > _MOVED).sum()),
            "median_factor": float(np.exp(np.median(gaps))) if len(gaps) else None,
            "largest_factor": float(np.exp(furthest)) if len(gaps) else None,
        }
        if facts["moved"] or facts["splits"][0] != facts["splits"][1]:
            types.append((-abs(furthest), facts))
    return {
        "splits": [len(before), len(after)],
        "moved": sum(facts["moved"] for _, facts in types),
        "types": [facts for _, facts in sorted(types, key=lambda entry: (entry[0], entry[1]["job_type"]))],
    }


def _log_speeds(policy: PolicyFile) -> dict[tuple[str, str, int, int], float]:
    return {(e.job_type, e.kind.value, e.ps, e.workers): e.mean_log_speed for e in policy.priors}


def _scores(one: fleet_pb2.ReplayScore, other: fleet_pb2.ReplayScore) -> Facts:
    """The ratios beside each other, only where both are of the same replays."""
    reason = _incomparable(one, other)
    if reason:
        return {"reason": reason}
    before = {entry.replay: entry.avg_jct_seconds for entry in one.replays}
    return {
        "replay_set": one.replay_set,
        "replay_set_digest": one.replay_set_digest,
        "over": {name: [one.over[name], other.over[name]] for name in sorted(one.over)},
        "avg_jct_seconds": {
            entry.replay: [before[entry.replay], entry.avg_jct_seconds]
            for entry in other.replays
            if entry.replay in before
        },
    }


def _decisions(one: fleet_pb2.ReplayScore, other: fleet_pb2.ReplayScore) -> Facts:
    """At how many of the fixed states the two decide otherwise."""
    reason = _incomparable(one, other)
    if reason:
        return {"reason": reason}
    differing = sum(a != b for a, b in zip(one.decisions, other.decisions, strict=False))
    states = min(len(one.decisions), len(other.decisions))
    return {
        "replay_set": one.replay_set,
        "states": states,
        "differing": differing,
        "share": differing / states if states else 0.0,
    }


def _incomparable(one: fleet_pb2.ReplayScore, other: fleet_pb2.ReplayScore) -> str:
    if one.state != "scored" or other.state != "scored":
        return "not both have a score"
    if one.replay_set_digest != other.replay_set_digest:
        return (
            f"their scores are of different replays ({one.replay_set} {one.replay_set_digest[:12]}, "
            f"{other.replay_set} {other.replay_set_digest[:12]})"
        )
    return ""


def shown(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def diff_table(facts: Facts) -> Table:
    """A row a difference."""
    table = Table("", facts["from"], facts["to"])
    for section in ("card", "spec"):
        for name, (one, other) in facts[section].items():
            if name == "created_unix_seconds":
                table.add_row(name, *(f"{moment(value)} UTC" for value in (one, other)))
                continue
            table.add_row(name if section == "card" else f"spec.{name}", shown(one), shown(other))
    weights, scores, decisions = facts["weights"], facts["scores"], facts["decisions"]
    if "reason" in weights:
        table.add_row("weights", "–", weights["reason"])
    else:
        for name, layer in {"all weights": weights["all"], **weights["layers"]}.items():
            cosine = "–" if layer["cosine"] is None else f"{layer['cosine']:.6f}"
            table.add_row(name, "", f"L2 {layer['l2']:.4g}, max {layer['max']:.3g}, cosine {cosine}")
    _add_beliefs(table, facts["beliefs"])
    if "reason" in scores:
        table.add_row("scores", "–", scores["reason"])
        return table
    for name, (one, other) in scores["over"].items():
        table.add_row(f"average JCT over {name}", f"{one - 1.0:+.1%}", f"{other - 1.0:+.1%}")
    for name, (one, other) in scores["avg_jct_seconds"].items():
        table.add_row(f"avg JCT, {name}", f"{one:.0f} s", f"{other:.0f} s")
    table.add_row(
        "decisions that differ",
        "",
        f"{decisions['differing']} of {decisions['states']} states of {decisions['replay_set']} "
        f"({decisions['share']:.0%})",
    )
    return table


def _add_beliefs(table: Table, beliefs: Facts) -> None:
    if "reason" in beliefs or not any(beliefs["splits"]):
        return  # a file that is no longer kept is the weights' row already
    one, other = beliefs["splits"]
    table.add_row("beliefs of speeds", f"{one} splits", f"{other} splits, {beliefs['moved']} moved")
    for entry in beliefs["types"][:_TYPES_SHOWN]:
        before, after = entry["splits"]
        if entry["median_factor"] is None:
            words = "gone" if not after else "new" if not before else "of another kind"
        else:
            words = (
                f"{entry['moved']} of {after} splits moved, median × {entry['median_factor']:.3g}, "
                f"furthest × {entry['largest_factor']:.3g}"
            )
        table.add_row(f"speeds of {entry['job_type']}", f"{before} splits", words)
    left = len(beliefs["types"]) - _TYPES_SHOWN
    if left > 0:
        table.add_row("", "", f"and of {left} more types; -o json has them all")
