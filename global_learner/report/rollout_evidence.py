"""Evidence of a rollout as a chart has it: bounds of the fleet's mean loss at every verdict, and where they decide.

The bounds are those by which verdicts go: they hold at every moment at once, whichever cluster is left out.
"""

from __future__ import annotations

from typing import Any

from global_learner.report.words import counted
from global_learner.rollout.plan import RolloutPlan
from policy_net.exchange.generated import fleet_pb2

_KINDS = ("canary", "wave", "fleet")
"""Stages whose clusters alternate; a gate's figure is of something else."""
_NO_JOB = -1.0
"""The loss where no job would be left. Lower bounds beyond it come from few blocks, and say nothing."""


def evidence(rollout: fleet_pb2.Rollout, plan: RolloutPlan) -> dict[str, Any] | None:
    """Points over time, a finding, and the limits; None before the first verdict on clusters that alternate."""
    points = [
        _point(verdict, rollout)
        for verdict in rollout.verdicts
        if verdict.pairs and verdict.stage < len(plan.stages) and plan.stages[verdict.stage].kind in _KINDS
    ]
    if not points:
        return None
    return {
        "version": rollout.candidate_version,
        "margin": plan.verdict.margin_percent / 100.0,
        "points": points,
        "finding": _finding(points[-1], rollout),
    }


def _point(verdict: fleet_pb2.RolloutVerdict, rollout: fleet_pb2.Rollout) -> dict[str, Any]:
    known = verdict.HasField("loss_at_least") and verdict.HasField("loss_at_most")
    return {
        "seconds": max(verdict.unix_seconds - rollout.started_unix_seconds, 0.0),
        "stage": verdict.stage,
        "pairs": verdict.pairs,
        "estimate": verdict.loss if known and not verdict.rests_on else None,
        "rests_on": verdict.rests_on or None,
        "least": max(verdict.loss_at_least, _NO_JOB) if known else None,
        "most": verdict.loss_at_most if known else None,
        "outcome": verdict.outcome,
    }


def _finding(point: dict[str, Any], rollout: fleet_pb2.Rollout) -> str:
    version = rollout.candidate_version
    after = f"after {counted(point['pairs'], 'pair')} of blocks"
    if point["outcome"] == "fail" and (point["least"] is None or point["least"] <= 0.0):
        return f"It failed by a test beside the band, {after}."
    if point["least"] is None:
        return f"Nothing is known yet of v{version}, {after}."
    least, most = point["least"], point["most"]
    known = f"between {_share(least)} and {_share(most)}"
    if least > 0.0 or most < 0.0:
        known = f"at least {_share(least if least > 0.0 else most)}"
    elif least <= _NO_JOB:
        known = f"at most {_share(most)}"
    alone = point["rests_on"]
    estimate = f"the estimate rests on {alone} alone" if alone else f"{_share(point['estimate'])} by estimate"
    return f"With v{version} the clusters have {known} jobs in the system, {after}: {estimate}."


def _share(loss: float) -> str:
    return f"{abs(loss):.1%} {'more' if loss >= 0.0 else 'fewer'}"
