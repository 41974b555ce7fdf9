"""What the demo's page shows beside what the learner told: its replays, and the staleness of every update."""

from __future__ import annotations

from collections import Counter
from typing import Any

from deploy.local.charts.job import JobTimeline
from deploy.local.charts.staleness import Updates
from deploy.local.charts.style import POLICY_LABELS
from deploy.local.comparison import Comparison
from global_learner.report.content import report_content
from global_learner.report.fleet import job_life
from global_learner.report.learning import CurvePoint
from global_learner.report.savings import Replays
from policy_net.exchange.generated import fleet_pb2


def page_content(report: fleet_pb2.GetReportReply, comparison: Comparison, staleness: Updates) -> dict[str, Any]:
    """The page's content, as the learner's own page has it, with the replays."""
    replays = Replays(
        jct_seconds=comparison.own_jct_seconds,
        labels=POLICY_LABELS,
        baseline="drf",
        proposed="learned",
        curve=[CurvePoint(score.version, score.head_step, score.ratio_by_cluster) for score in comparison.curve],
        jobs=[_life(comparison.job)],
    )
    every_update = {cluster: Counter(values) for cluster, values in staleness.items()}
    return report_content(report, replays, every_update, ended=True)


def _life(job: JobTimeline) -> dict[str, Any]:
    """The one job of the replays that is drawn, under the final version; its last entry is its end."""
    held = [
        (max(at - job.submit_seconds, 0.0), workers, ps)
        for at, workers, ps in zip(job.times_seconds, job.workers, job.ps, strict=True)
    ]
    return job_life(
        cluster=job.cluster,
        name=f"{job.job_id}, replayed",
        job_type=job.job_type,
        held=held[:-1],
        seconds=held[-1][0],
        completed=True,
        resizes=job.resizes,
    )
