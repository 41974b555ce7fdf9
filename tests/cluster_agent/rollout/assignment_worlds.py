"""A learner that signs assignments, and a simulated agent that follows it: both in this process, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from agent_fakes import Clock, FakeLearner
from signing_fleet import SigningFleet

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, DeadlineAsker
from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.base import AgentParts, BackendStatus, backend_module
from cluster_agent.fleet.assignment_follower import AssignmentFollower, AssignmentParts, Rollouts
from cluster_agent.fleet.fleet_link import FleetLink, FleetTasks, Follows
from cluster_agent.fleet.learner_client import AgentStatus, EvidenceAnswer
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource, local_policy
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.guard import Guard
from cluster_agent.learning.experience import BelievedReward
from cluster_agent.loop import Deciding, DecisionLoop, DecisionRecords, Lessons
from cluster_agent.recording.decision_log import DecisionLog, DecisionRecorder
from cluster_agent.recording.memory import AgentMemory
from cluster_agent.rollout.assignment_state import Evidence
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.settings import PolicySettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import PolicyContext, RewardKind
from policy_net.errors import LearnerUnreachable
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.exchange.signed_documents import KeyRole, SignedDocument, Timestamp, VersionStatement, signed
from policy_net.exchange.wire import Assignment, FetchedPolicy, Registration
from policy_net.policy import build_policy
from policy_net.set_policy.policy import default_set_file
from policy_net.throughput.parametric import OnlineFit

CLUSTER = "north"
SHIPPED = default_set_file()
EXPIRES = 1000
"""When timestamps expire; the fakes' clock begins at 100."""
BLOCK_SECONDS = 4 * 3600.0


def version_bytes(number: int) -> bytes:
    """Versions differ in their weights, and every other one in what it was told of speeds."""
    noise = np.random.default_rng(number).normal(0.0, 0.3, SHIPPED.weights.shape).astype(SHIPPED.weights.dtype)
    priors = SHIPPED.priors[: len(SHIPPED.priors) // 2] if number % 2 == 0 else SHIPPED.priors
    return PolicyFile(SHIPPED.spec, SHIPPED.weights + noise, {}, priors).to_bytes()


def shadow(challenger: int = 2, rollout: int = 1) -> RolloutAssignment:
    return RolloutAssignment(rollout, AssignmentRole.SHADOW, challenger, 5, BLOCK_SECONDS, BLOCK_SECONDS / 4)


def alternating(challenger: int = 2, rollout: int = 1) -> RolloutAssignment:
    return dataclasses.replace(shadow(challenger, rollout), role=AssignmentRole.ALTERNATING)


class RolloutLearner(FakeLearner):
    """Assigns, asks assignments and signs both; keeps what it is told.

    Attributes:
        said: what the answer says of the assignment, where that is not what is signed.
        blocks: by number; holds all below `next_block`.
        damaged: versions that arrive with another byte.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fleet = SigningFleet()
        self.assigned = 1
        self.rollout_assignment: RolloutAssignment | None = None
        self.said: RolloutAssignment | str | None = "as signed"
        self.expires = EXPIRES
        self.blocks: dict[int, object] = {}
        self.next_block = 0
        self.shadows: list[object] = []
        self.evidence_calls = 0
        self.lose_evidence = 0
        self.over = False
        self.damaged: set[int] = set()

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        registration = super().register(spec_digest, job_types)
        return dataclasses.replace(registration, spec=SHIPPED.spec)

    def heartbeat(self, incarnation: int, status: AgentStatus) -> Assignment:
        assignment = super().heartbeat(incarnation, status)
        said = self.rollout_assignment if isinstance(self.said, str) else self.said
        return dataclasses.replace(assignment, timestamp=self.stamp(), rollout_assignment=said)

    def stamp(self) -> SignedDocument:
        self.fleet.number += 1
        stamp = Timestamp(
            self.fleet.root.fleet, CLUSTER, self.fleet.number, self.assigned, self.expires, self.rollout_assignment
        )
        return signed(stamp.to_bytes(), [self.fleet.keys[KeyRole.TIMESTAMP]])

    def fetch_policy(self, version: int) -> FetchedPolicy:
        self._answer()
        self.fetches.append(version)
        data = version_bytes(version)
        digest, root = digest_of(data), self.fleet.root
        stated = VersionStatement(root.fleet, version, version - 1, version, digest, SHIPPED.spec.digest)
        document = signed(stated.to_bytes(), [self.fleet.keys[KeyRole.VERSION]])
        if version in self.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return FetchedPolicy(version, data, digest, document, self.stamp(), tuple(self.fleet.roots))

    def share_evidence(self, registration: Registration, evidence: Evidence) -> EvidenceAnswer:
        self._answer()
        self.evidence_calls += 1
        if self.over or (self.rollout_assignment is not None and evidence.rollout != self.rollout_assignment.rollout):
            return EvidenceAnswer(False, 0)
        for block in evidence.blocks:
            if block.number >= self.next_block:
                assert block.number not in self.blocks
                self.blocks[block.number] = block
        if evidence.blocks:
            self.next_block = max(self.next_block, evidence.blocks[-1].number + 1)
        if evidence.shadow is not None:
            self.shadows.append(evidence.shadow)
        if self.lose_evidence:
            self.lose_evidence -= 1
            raise LearnerUnreachable("the reply was lost")
        return EvidenceAnswer(True, self.next_block)


class SimulatedAgent:
    """One life of an agent; the next one goes on from the same folder, as after a kill.

    Args:
        source: of the cluster's jobs.
    """

    def __init__(
        self,
        folder: Path,
        learner: RolloutLearner,
        clock: Clock,
        *,
        source: str = "dl2:jobs=60,seed=3",
        allowed: Rollouts = "follow",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.learner, self.telemetry = folder, learner, AgentTelemetry()
        settings = PolicySettings()
        trust = FleetTrust(folder, CLUSTER, False, clock)
        self.source = PolicySource(settings, CandidateFactory(settings), KeptVersion(folder), trust)
        first = local_policy(self.source) or self.source.factory.from_name_or_file("drf")
        self.beliefs = OnlineFit()
        askers = DeadlineAsker(120.0, Clock()), DeadlineAsker(120.0, Clock())
        self.active = ActivePolicy(first, self.beliefs, askers=askers)
        memory = AgentMemory(folder, self.beliefs, self.active)
        self.rollout_part = RolloutPart(folder, CLUSTER, self.active, self.beliefs, clock)
        fallback = build_policy("drf", PolicyContext())
        guard = Guard(fallback, 120.0, memory.interventions)
        parts = AgentParts(folder, "drf", None, lambda _: False, clock)
        backend = SimulatedBackendSettings.model_validate(
            {
                "kind": "simulated",
                "workloads": [{"source": source}],
                "environment": {"nodes": 8},
                "pace": {"kind": "free"},
                "baseline": False,
            }
        )
        self.backend = backend_module("simulated").open_backend(backend, parts)
        recorder = DecisionRecorder(DecisionLog(folder, 10**8, 8), fallback, settings, lambda: 1.5e9)
        self.loop = DecisionLoop(
            self.backend,
            Deciding(self.active, guard, self.rollout_part, 120.0),
            DecisionRecords(memory, recorder),
            Lessons(BelievedReward(RewardKind.SLOT_UTILITY, self.beliefs)),
            self.telemetry,
            lambda _: False,
        )
        session = Session(learner, "", ())
        access = LearnerAccess(learner, session, self.telemetry, retry_backoff(RetrySettings(), CLUSTER))
        self.follower = AssignmentFollower(
            learner,
            AssignmentParts(
                self.active,
                self.rollout_part,
                self.source,
                KeptVersion(folder, challenger=True),
                allowed,
                memory.challenger_believed,
                clock,
            ),
            self.telemetry,
        )
        self.follower.resume()
        tasks = FleetTasks(heartbeat_seconds=1.0, follows=Follows.VERSIONS, rollouts=self.follower)
        self.link = FleetLink(access, self.active, self.source, self.status, tasks)

    def status(self) -> AgentStatus:
        cluster = BackendStatus(self.backend.time_seconds, 0, 0, 0, 0, 0.0)
        return AgentStatus(cluster, self.loop.decisions, self.active.acting.identity.version, 0)

    def beat(self) -> AgentStatus:
        """One heartbeat; what it said."""
        self.link.beat()
        return self.learner.heartbeats[-1]

    def decide(self) -> Candidate:
        """One decision; who made it."""
        assert not self.backend.finished
        assert self.loop.decide_once()
        return self.active.acting

    def live(self, most: int = 10**6) -> list[int]:
        """Decide, with a heartbeat before each decision, until the jobs are done; the versions that acted."""
        acted = []
        while not self.backend.finished and len(acted) < most:
            self.beat()
            acted.append(self.decide().identity.version)
        return acted
