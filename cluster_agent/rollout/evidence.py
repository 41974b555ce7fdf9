"""Evidence of a rollout: what an agent tells of it, in fleet.proto's words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster_agent.guard import ChallengerDecision, GuardedDecision
from cluster_agent.rollout.alternation import FinishedBlock, Latencies
from policy_net.domain import ClusterState, Decision, SpeedModel, speed_at
from policy_net.exchange.generated import fleet_pb2

# Sums over the decisions that were made twice and carried out once: how the candidate compares, before it acts.

_LEAST_PROGRESS = 0.01
"""Jobs' worth; where one of the two lets nothing train, the logarithm of their ratio stays finite."""


@dataclass
class ShadowSums:
    """What fleet.proto's `ShadowSums` says, while it adds up."""

    decisions: int = 0
    agreed: int = 0
    failed: int = 0
    incumbent_interventions: int = 0
    candidate_interventions: int = 0
    gain: float = 0.0
    compared: int = 0
    incumbent_latencies: Latencies = field(default_factory=Latencies)
    candidate_latencies: Latencies = field(default_factory=Latencies)

    def add(
        self, state: ClusterState, guarded: GuardedDecision, challenged: ChallengerDecision, speeds: SpeedModel
    ) -> None:
        """Compare two decisions about a state, of which the first was carried out."""
        self.decisions += 1
        self.incumbent_interventions += bool(guarded.interventions)
        self.candidate_interventions += bool(challenged.interventions)
        self.incumbent_latencies.add(guarded.decide_seconds)
        if not challenged.answered:
            self.failed += 1
            return
        self.candidate_latencies.add(challenged.seconds)
        decision = challenged.decision
        if decision is None:
            return
        self.agreed += all(decision.of(job.job_id) == guarded.decision.of(job.job_id) for job in state.jobs)
        candidate, incumbent = (_believed_progress(each, state, speeds) for each in (decision, guarded.decision))
        gain = math.log(max(candidate, _LEAST_PROGRESS) / max(incumbent, _LEAST_PROGRESS))
        if math.isfinite(gain):
            self.gain += gain
            self.compared += 1

    def message(self) -> fleet_pb2.ShadowSums:
        """For the wire."""
        return fleet_pb2.ShadowSums(
            decisions=self.decisions,
            agreed=self.agreed,
            failed=self.failed,
            incumbent_interventions=self.incumbent_interventions,
            candidate_interventions=self.candidate_interventions,
            incumbent_latency_p99_seconds=self.incumbent_latencies.p99_seconds,
            candidate_latency_p99_seconds=self.candidate_latencies.p99_seconds,
            believed_gain=self.gain / self.compared if self.compared else 0.0,
        )

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return counts | {
            "gain": self.gain,
            "incumbent_latencies": self.incumbent_latencies.to_json(),
            "candidate_latencies": self.candidate_latencies.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ShadowSums:
        """The inverse.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        made = cls()
        for name in _COUNTS:
            setattr(made, name, int(content[name]))
        made.gain = float(content["gain"])
        made.incumbent_latencies = Latencies.from_json(content["incumbent_latencies"])
        made.candidate_latencies = Latencies.from_json(content["candidate_latencies"])
        return made


_COUNTS = ("decisions", "agreed", "failed", "incumbent_interventions", "candidate_interventions", "compared")


def _believed_progress(decision: Decision, state: ClusterState, speeds: SpeedModel) -> float:
    """Jobs' worth of progress: of every job its believed speed, as a share of the best that is believed of its type."""
    total = 0.0
    for job in state.jobs:
        grid = speeds.grid(job.job_type)
        granted = decision.of(job.job_id)
        best = float(grid[: job.max_ps + 1, : job.max_workers + 1].max())
        if best > 0.0 and job.can_train(granted):
            total += speed_at(grid, granted.ps, granted.workers) / best
    return total


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the learner is to hear; `shadow` is None where nothing is new."""

    rollout: int
    blocks: tuple[FinishedBlock, ...]
    shadow: ShadowSums | None
