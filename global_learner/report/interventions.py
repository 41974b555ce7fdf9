"""How often the guards stood between the policy and a cluster, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from foundation.figures import shown
from policy_net.exchange.generated import fleet_pb2

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "nan": "the policy's numbers were not finite; the fallback decided",
        "exception": "the policy failed; the fallback decided",
        "deadline": "the policy thought for too long; the fallback decided",
        "malformed": "the decision was no decision; the fallback decided",
        "idle": "no job would have trained; the fallback decided",
        "unknown-job": "the decision named a job that was not there; that part was left out",
        "over-cap": "a job would have got more tasks than it may have; it got what it may",
        "over-capacity": "the cluster has less than was decided; jobs got what there was, in order of arrival",
        "fallback-failed": "the fallback failed too; jobs kept what they had",
    }
)
"""The words of the agents' guards; others are shown as they are."""


def interventions(views: Sequence[fleet_pb2.ClusterView]) -> dict[str, Any]:
    """By reason, most frequent first, with what each cluster had of it; of how many decisions; all known reasons."""
    totals: Counter[str] = Counter()
    for view in views:
        totals.update(view.status.guard_interventions)
    return {
        "decisions": sum(view.status.decisions for view in views),
        "total": totals.total(),
        "watched": [{"reason": reason, "meaning": meaning} for reason, meaning in MEANINGS.items()],
        "reasons": [
            {
                "reason": shown(reason),
                "meaning": MEANINGS.get(reason, ""),
                "total": count,
                "by": {
                    view.cluster: view.status.guard_interventions[reason]
                    for view in views
                    if reason in view.status.guard_interventions
                },
            }
            for reason, count in sorted(totals.items(), key=lambda item: (-item[1], item[0]))
            if count
        ],
    }
