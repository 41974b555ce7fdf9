"""Average job completion times by cluster and policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from global_learner.report.replays import Replays
from global_learner.report.words import listed, policy_label
from policy_net.exchange.generated import fleet_pb2

_BASELINE, _FLEET = "baseline", "fleet"


def completion_times(views: Sequence[fleet_pb2.ClusterView], replays: Replays | None = None) -> dict[str, Any] | None:
    """Replays on the same jobs where there are some, else what was seen so far; None if no job is done anywhere."""
    if replays is not None and replays.jct_seconds:
        return {
            "note": "Every policy on the same jobs and machines, replayed to completion after the run.",
            "policies": [{"key": key, "label": label} for key, label in replays.labels.items()],
            "proposed": replays.proposed,
            "rows": [{"cluster": cluster, "seconds": dict(by)} for cluster, by in replays.jct_seconds.items()],
        }
    done = sorted((view for view in views if view.status.jobs_done), key=lambda view: view.cluster)
    if not done:
        return None
    baselines = sorted({policy_label(view.status.baseline_policy) for view in done if view.status.baseline_policy})
    policies = [{"key": _FLEET, "label": "this fleet, so far"}]
    if any(view.status.baseline_jct_seconds > 0.0 for view in done):
        policies.insert(0, {"key": _BASELINE, "label": f"{listed(baselines) if baselines else 'fallback'}, simulated"})
    return {
        "note": "Of the jobs that each cluster completed so far; the baseline is simulated on exactly these jobs.",
        "policies": policies,
        "proposed": _FLEET,
        "rows": [{"cluster": view.cluster, "seconds": _seconds(view.status)} for view in done],
    }


def _seconds(status: fleet_pb2.ClusterStatus) -> dict[str, float]:
    found = {_FLEET: status.avg_jct_seconds}
    if status.baseline_jct_seconds > 0.0:
        found[_BASELINE] = status.baseline_jct_seconds
    return found
