"""Lives of single jobs, as far as clusters tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foundation.figures import shown
from policy_net.exchange.generated import fleet_pb2


def told_jobs(views: Sequence[fleet_pb2.ClusterView]) -> list[dict[str, Any]]:
    """All of them, by cluster and number."""
    return [
        job_life(
            cluster=view.cluster,
            name=f"job {timeline.number}",
            job_type=timeline.job_type,
            held=[(point.seconds, point.workers, point.ps) for point in timeline.held],
            seconds=timeline.seconds,
            completed=timeline.completed,
            resizes=timeline.resizes,
            interventions=[(mark.seconds, mark.reason) for mark in timeline.interventions],
        )
        for view in sorted(views, key=lambda view: view.cluster)
        for timeline in sorted(view.status.job_timelines, key=lambda timeline: timeline.number)
    ]


def job_life(
    cluster: str,
    name: str,
    job_type: str,
    held: Sequence[tuple[float, int, int]],
    seconds: float,
    completed: bool,
    resizes: int,
    interventions: Sequence[tuple[float, str]] = (),
) -> dict[str, Any]:
    """One job as the page reads it; times in seconds since its submission, `held` as moment, workers, PSs."""
    return {
        "id": f"{cluster}/{name}",
        "cluster": cluster,
        "name": shown(name),
        "job_type": shown(job_type),
        "held": [list(point) for point in held],
        "seconds": seconds,
        "completed": completed,
        "resizes": resizes,
        "interventions": [[at, shown(reason)] for at, reason in interventions],
    }
