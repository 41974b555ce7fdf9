"""The learner as an agent asks it; `learner_client.py` asks it over gRPC, tests ask a fake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from cluster_agent.backends.base import BackendStatus
from cluster_agent.recording.job_timelines import JobTimeline
from cluster_agent.recording.load_history import LoadCurve
from cluster_agent.recording.replayed_past import ReplayedPast
from cluster_agent.rollout.evidence import Evidence
from policy_net.exchange.learner_answers import (
    Assignment,
    FetchedPolicy,
    LearnerHead,
    PushAnswer,
    Registration,
    ShareAnswer,
)
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import GradientUpdate, RoundAnswer, RoundTask
from policy_net.exchange.workload_sketch import WorkloadSketch


@dataclass(frozen=True, slots=True)
class EvidenceAnswer:
    """Fate of a rollout's evidence; the learner holds all blocks below `next_block`.

    It is not `taken` if that rollout is over, or asks nothing of this cluster.
    """

    taken: bool
    next_block: int


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """What a heartbeat says.

    Attributes:
        baseline_policy: whose average JCT `cluster.baseline_jct_seconds` is.
        job_timelines, load, replayed: empty or None where the operator lets none be told, or nothing is known yet.
        refused_version: assigned, or to be held beside the assigned one, and not acted with; 0 for none.
        refused_reason: a word for why.
        rollout: whose assignment is done now; 0 for none. `rollout_role` says how, `beside_version` what is held ready.
    """

    cluster: BackendStatus
    decisions: int
    acting_version: int
    learning_step: int
    interventions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    finished: bool = False
    baseline_policy: str = ""
    job_timelines: Sequence[JobTimeline] = ()
    load: Sequence[LoadCurve] = ()
    replayed: ReplayedPast | None = None
    refused_version: int = 0
    refused_reason: str = ""
    rollout: int = 0
    rollout_role: str = ""
    beside_version: int = 0


class LearnerCalls(Protocol):
    """The calls of fleet.proto that an agent makes.

    Every call raises `LearnerUnreachable` if no answer came in time and `LearnerRefused` if the answer was no.
    """

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        """Say that this cluster is there; `spec_digest` is empty where any spec will do."""
        ...

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead | None:
        """The head; None if it is still the one of `have_step`."""
        ...

    def push(self, update: GradientUpdate, spec: WeightSpec) -> PushAnswer:
        """Offer an update; offering the same one again is safe."""
        ...

    def heartbeat(self, incarnation: int, status: AgentStatus) -> Assignment:
        """Say how things are."""
        ...

    def poll(self, registration: Registration) -> RoundTask | None:
        """What a round asks of this cluster; waits a second or so for it."""
        ...

    def reply(self, registration: Registration, answer: RoundAnswer) -> bool:
        """Answer a task; False if it is over."""
        ...

    def share_beliefs(
        self, registration: Registration, revision: int, statistics: Sequence[SpeedStatistic]
    ) -> ShareAnswer:
        """Tell all that this cluster has seen of speeds; revisions rise within a registration."""
        ...

    def share_evidence(self, registration: Registration, evidence: Evidence) -> EvidenceAnswer:
        """Tell what was found out in a rollout; telling it again is safe."""
        ...

    def share_sketch(self, registration: Registration, sketch: WorkloadSketch | None) -> bool:
        """Tell what kind of work this cluster has, in place of what was told before; None: have it forgotten.

        False if the learner holds just that already.
        """
        ...

    def return_policy(self, registration: Registration, data: bytes) -> bool:
        """Give a policy file back that the learner lost; False if it misses none like it."""
        ...

    def fetch_policy(self, version: int) -> FetchedPolicy:
        """A published version's file."""
        ...
