"""Replays of the gate: scores of versions on the fixed replays, and on workloads drawn from clusters' sketches.

Each fixed replay counts as a cluster: it has machines, a load and jobs of its own, and leaving one out asks whether the
verdict hangs on a single workload. Sketches are judged apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from global_learner.rollout.state import RolloutState
from global_learner.rollout.verdicts.gate import OwnWork, Replayed

CONTENDERS = ("drf", "optimus")
"""Heuristics that the gate compares with; `oracle` knows what nobody can."""

Replays = Mapping[str, Sequence[Replayed]]
"""By whose workload it is."""

STANDSTILL_RATIO = 10.0
"""Slowdown that counts for a candidate that lets jobs wait for ever where others do not."""


@dataclass(frozen=True, slots=True)
class FrozenSketch:
    """A cluster's sketch as a rollout's gate began with it.

    Attributes:
        sketch: `WorkloadSketch.to_json`.
        jct_seconds: mean by policy; None: jobs wait for ever.
        dropped: why it does not count; empty: it does.
    """

    cluster: str
    seed: int
    sketch: Mapping[str, Any]
    jct_seconds: Mapping[str, float | None] = field(default_factory=dict)
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class GateReplayed:
    """Replays that the gate judges."""

    fixed: Replays
    own: OwnWork


def version_name(version: int) -> str:
    """Name under which a version's replays are stored."""
    return f"v{version}"


def incumbents_of(state: RolloutState) -> set[int]:
    """Versions other than the candidate that a rollout's clusters would go back to."""
    return {member.incumbent for member in state.members if member.role.takes_part} - {state.candidate}


def replayed_on(sketch: FrozenSketch, candidate: int, incumbents: Collection[int]) -> Replayed | str | None:
    """Result of a sketch's replays; None while some are missing; a text: why it does not count."""
    if sketch.dropped:
        return sketch.dropped
    names = {version_name(version) for version in incumbents}
    if not {version_name(candidate), *names, *CONTENDERS} <= sketch.jct_seconds.keys():
        return None
    incumbent, heuristic = (_best(sketch.jct_seconds, group) for group in (names, CONTENDERS))
    others = min(incumbent, heuristic)
    if math.isinf(others):
        return "neither an incumbent nor a heuristic gets its jobs done"
    own = sketch.jct_seconds[version_name(candidate)]
    return Replayed(STANDSTILL_RATIO * others if own is None else own, incumbent, heuristic)


def own_work(sketches: Sequence[FrozenSketch], candidate: int, incumbents: Collection[int]) -> OwnWork | None:
    """Results of all sketches; None while some are missing."""
    runs, dropped = {}, {}
    for sketch in sketches:
        found = replayed_on(sketch, candidate, incumbents)
        if found is None:
            return None
        if isinstance(found, str):
            dropped[sketch.cluster] = found
        else:
            runs[sketch.cluster] = found
    return OwnWork(runs, dropped)


def _best(jct_seconds: Mapping[str, float | None], names: Collection[str]) -> float:
    return min((value for name in names if (value := jct_seconds[name]) is not None), default=math.inf)


def replays_of(
    scores: Mapping[int, Mapping[str, Any]], candidate: int, incumbents: Collection[int]
) -> Replays | str | None:
    """Replays of a candidate, incumbents and heuristics; None while some are missing; a text: why there will be none.

    Where clusters go back to several versions, the best of them counts on each workload.

    Args:
        scores: of versions, all on the same set, as `scores` keeps them.
    """
    for version, score in sorted(scores.items()):
        if score["state"] == "failed":
            return f"the replays of v{version} failed: {score.get('reason', '')}"
    if not {candidate, *incumbents} <= scores.keys():
        return None
    times = {
        version: {row["replay"]: float(row["avg_jct_seconds"]) for row in score["replays"]}
        for version, score in scores.items()
    }
    return {
        row["replay"]: [
            Replayed(
                times[candidate][row["replay"]],
                min(times[version][row["replay"]] for version in incumbents or (candidate,)),
                min(float(row["baseline_jct_seconds"][name]) for name in CONTENDERS),
            )
        ]
        for row in scores[candidate]["replays"]
    }
