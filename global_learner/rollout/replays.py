"""Replays of the gate, from the scores that versions have on the fixed replays.

What counts as a cluster there: each replay of the fixed set. Every one has machines, a load and jobs of its own, and
leaving one out asks whether the verdict hangs on a single workload. They are few, and nobody's own; workloads that
clusters described of themselves would stand beside them, under their clusters' names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from global_learner.rollout.verdicts.gate import Replayed

CONTENDERS = ("drf", "optimus")
"""Heuristics that the gate compares with; `oracle` knows what nobody can."""

Replays = Mapping[str, Sequence[Replayed]]
"""By whose workload it is."""


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
