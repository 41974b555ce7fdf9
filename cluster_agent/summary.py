"""What a run came to: written to the state directory when it ends, however it ends in good order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cluster_agent.fleet.learner import AgentStatus
from cluster_agent.recording.state_files import write_json

SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class TrainingCounts:
    """What this process sent to the learner.

    Attributes:
        pushed: updates that were sent at least once.
        acknowledged: that the learner applied, or had applied before.
        rejected: that it refused, by reason.
        dropped_decisions: that nobody could learn from in time.
        staleness_mean: in head steps, over the applied ones.
    """

    pushed: int = 0
    acknowledged: int = 0
    rejected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    dropped_decisions: int = 0
    staleness_mean: float = 0.0


def write_summary(state_dir: Path, cluster: str, status: AgentStatus, training: TrainingCounts) -> None:
    """Write `summary.json`."""
    jobs = status.cluster
    content = {
        "cluster": cluster,
        "finished": status.finished,
        "jobs": jobs.jobs_total,
        "completed": jobs.jobs_done,
        "avg_jct_seconds": jobs.avg_jct_seconds,
        "baseline_jct_seconds": jobs.baseline_jct_seconds,
        "decisions": status.decisions,
        "guard_interventions": dict(status.interventions),
        "acting_version": status.acting_version,
        "updates": {name: getattr(training, name) for name in training.__slots__}
        | {"rejected": dict(training.rejected)},
    }
    write_json(state_dir / SUMMARY, content, indent=2)
