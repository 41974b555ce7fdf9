"""Where `spread` places an allocation."""

from __future__ import annotations

from collections.abc import Mapping

from policy_net.domain import Allocation, ClusterState, Share
from policy_net.placement.layout import layout_of
from policy_net.placement.spread import SpreadPlan


def place_spread(
    state: ClusterState, allocation: Mapping[str, Allocation]
) -> tuple[dict[str, tuple[Share, ...]], dict[str, Allocation]]:
    """Every job's shares, and what of it could not be placed."""
    plan = SpreadPlan(
        layout_of(state.nodes),
        [
            (job.job_id, job.worker_demand, job.ps_demand, allocation[job.job_id])
            for job in state.jobs
            if job.job_id in allocation
        ],
    )
    return dict(plan.shares), dict(plan.unplaced)
