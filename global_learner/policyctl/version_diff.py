"""Difference of two versions: their cards, specs, weights, beliefs, scores, and decisions at fixed states."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from foundation.tables import NOTHING, Column, FactSheet, FittedTable
from global_learner.policyctl.version_views import SHOWN_OF_A_DIGEST, card_label, card_words, version_facts
from global_learner.policyctl.views import Facts
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights, split_weights

_MOVED = 0.01
"""A believed speed that changes by less than a hundredth stays what it is."""
_TYPES_SHOWN = 10
_TO = "→"

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
    """Differences from the first version to the second; files are None where they are no longer kept."""
    one, other = version_facts(first.card), version_facts(second.card)
    scores = first.card.score, second.card.score
    unlike = {"reason": reason} if (reason := _incomparable(*scores)) else None
    return {
        "from": one["name"],
        "to": other["name"],
        "card": _changed({key: one[key] for key in _CARD}, {key: other[key] for key in _CARD}),
        "spec": _changed(json.loads(first.spec_json), json.loads(second.spec_json)),
        "weights": _weights(first_file, second_file),
        "beliefs": belief_moves(first_file, second_file),
        "scores": unlike or _scores(*scores),
        "decisions": unlike or _decisions(*scores),
    }


def _changed(one: Facts, other: Facts) -> Facts:
    names = [*one, *(name for name in other if name not in one)]
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _weights(one: PolicyFile | None, other: PolicyFile | None) -> Facts:
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


def diff_table(facts: Facts) -> Group:
    """What differs: facts from the first version to the second, then layers, job types and replays, a row each."""
    sheet = [(card_label(name), _from_to(name, pair)) for name, pair in facts["card"].items()]
    sheet += [(f"spec, {card_label(name)}", _from_to(name, pair)) for name, pair in facts["spec"].items()]
    weights, scores, decisions = facts["weights"], facts["scores"], facts["decisions"]
    if "reason" in weights:
        sheet.append(("weights", f"not compared: {weights['reason']}"))
    if "reason" in scores:
        sheet.append(("scores", f"not compared: {scores['reason']}"))
    else:
        sheet.append(
            (
                "decisions that differ",
                f"{decisions['differing']} of {decisions['states']} states of {decisions['replay_set']} "
                f"({decisions['share']:.0%})",
            )
        )
    parts: list[RenderableType] = [FactSheet(f"{facts['from']} {_TO} {facts['to']}", sheet)]
    if "reason" not in weights:
        parts.append(_layers_table(weights))
    parts += _belief_tables(facts["beliefs"])
    if "reason" not in scores:
        parts.append(_scores_table(facts))
    return Group(*(part for following in parts for part in ("", following)))


def _from_to(name: str, pair: list[Any]) -> str:
    one, other = (card_words(name, value) for value in pair)
    if name.endswith("digest"):
        one, other = one[:SHOWN_OF_A_DIGEST], other[:SHOWN_OF_A_DIGEST]
    return f"{one} {_TO} {other}"


def _layers_table(weights: Facts) -> FittedTable:
    columns = (Column("weights"), Column("distance\nL2"), Column("largest\ndifference", 2), Column("cosine", 1))
    rows = [
        (
            name,
            f"{layer['l2']:.4g}",
            f"{layer['max']:.3g}",
            NOTHING if layer["cosine"] is None else f"{layer['cosine']:.6f}",
        )
        for name, layer in {"all of them": weights["all"], **weights["layers"]}.items()
    ]
    return FittedTable("", columns, rows)


def _belief_tables(beliefs: Facts) -> list[RenderableType]:
    if "reason" in beliefs or not any(beliefs["splits"]):
        return []  # a file that is no longer kept is the weights' line already
    one, other = beliefs["splits"]
    columns = (
        Column("believed speeds\nof job type"),
        Column("splits", 2),
        Column("moved", 1),
        Column("median\nspeed"),
        Column("furthest\nspeed"),
    )
    rows = [
        (entry["job_type"], f" {_TO} ".join(map(str, entry["splits"])), str(entry["moved"]), *_factors(entry))
        for entry in beliefs["types"][:_TYPES_SHOWN]
    ]
    below = [f"all job types: {one} {_TO} {other} splits, {beliefs['moved']} moved"]
    left = len(beliefs["types"]) - _TYPES_SHOWN
    if left > 0:
        below.append(f"and of {left} more types; -o json has them all")
    return [FittedTable("", columns, rows, below)]


def _factors(entry: Facts) -> tuple[str, str]:
    before, after = entry["splits"]
    if entry["median_factor"] is None:
        return ("gone" if not after else "new" if not before else "other kind", NOTHING)
    return (f"× {entry['median_factor']:.3g}", f"× {entry['largest_factor']:.3g}")


def _scores_table(facts: Facts) -> FittedTable:
    scores = facts["scores"]
    columns = (Column("average JCT"), Column(facts["from"]), Column(facts["to"]))
    rows = [(f"over {name}", *(f"{ratio - 1.0:+.1%}" for ratio in pair)) for name, pair in scores["over"].items()]
    rows += [(f"of {name}", *(f"{jct:.0f} s" for jct in pair)) for name, pair in scores["avg_jct_seconds"].items()]
    return FittedTable("", columns, rows)
