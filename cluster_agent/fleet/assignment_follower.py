"""Checks and follows a rollout's assignment: fetches its version, holds it ready, sends the evidence.

It counts only if the fleet's key says the same; an answer that is not believed changes nothing, and what was believed
last ends with its own timestamp. Used by the heartbeat's thread alone; a fault here costs the rollout a block, and
never the cluster its assigned version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from cluster_agent.active_policy import ActivePolicy, Candidate
from cluster_agent.errors import StateDamaged
from cluster_agent.fleet.learner_client import AgentStatus, LearnerClient
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource, checked_candidate, refusal_word
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.telemetry import AgentTelemetry
from policy_net.errors import LearnerRefused, LearnerUnreachable, VersionRejected
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.exchange.signed_documents import NOT_ALLOWED, Distrust
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import Assignment, Registration

_log = structlog.get_logger()

_BAD_VERSION_BEATS = 30
_SHADOW_SECONDS = 30.0
"""Least time between two reports of a shadow's sums, which grow with every decision."""

Rollouts = Literal["follow", "shadow-only", "off"]


@dataclass(frozen=True, slots=True)
class AssignmentParts:
    """Parts of an agent that a rollout concerns.

    `kept` is the challenger on disk; `believed` gives what the version of a digest believed when it was held last.
    """

    active: ActivePolicy
    rollout_part: RolloutPart
    source: PolicySource
    kept: KeptVersion
    allowed: Rollouts
    believed: Callable[[str], dict[str, object] | None]
    clock: Callable[[], float]


class AssignmentFollower:
    """Follows assignments and tells what came of them."""

    def __init__(self, learner: LearnerClient, parts: AssignmentParts, telemetry: AgentTelemetry) -> None:
        self._learner = learner
        self._parts = parts
        self._telemetry = telemetry
        self._challenger: tuple[int, str] | None = None
        self._bad: dict[int, int] = {}
        self._refused = (0, "")
        self._shared_rollout = 0
        self._due_seconds = 0.0

    def resume(self) -> None:
        """Hold ready what an earlier life of this agent was to hold, while the learner is away; nothing is fetched."""
        rollout_assignment = self._parts.rollout_part.rollout_assignment
        if rollout_assignment is None:
            return
        try:
            candidate = self._parts.kept.load(self._parts.source.factory)
        except StateDamaged as error:
            _log.warning("version-beside-lost", version=rollout_assignment.beside_version, error=str(error))
            return
        if candidate is not None and candidate.identity.version == rollout_assignment.beside_version:
            self._set_challenger(candidate)

    def believe(self, assignment: Assignment) -> float | VersionRejected:
        """Until when an answer's assignment counts, or why it does not; asked before the assignment is followed.

        To follow an assignment may fetch a newer timestamp, beside which this answer's would be an old one.
        """
        trust = self._parts.source.trust
        rollout_assignment = assignment.rollout_assignment
        if assignment.assignment_fault:
            return VersionRejected(
                f"a rollout's assignment cannot be read: {assignment.assignment_fault}", Distrust.UNREADABLE
            )
        if trust is None or (trust.pinned is None and rollout_assignment is None):
            return 0.0
        try:
            return trust.check_rollout_assignment(assignment.version, rollout_assignment, assignment.timestamp)
        except VersionRejected as error:
            return error

    def follow(self, assignment: Assignment, spec: WeightSpec, believed: float | VersionRejected) -> None:
        """Do what is asked, from the next decision on."""
        rollout_part, rollout_assignment = self._parts.rollout_part, assignment.rollout_assignment
        if isinstance(believed, VersionRejected):
            if rollout_assignment is not None or assignment.assignment_fault:
                version = 0 if rollout_assignment is None else rollout_assignment.beside_version
                self._refuse(version or assignment.version, believed)
            return
        if rollout_assignment is None:
            self._end(assignment.version)
            return
        if self._parts.allowed == "off" or (
            self._parts.allowed == "shadow-only" and rollout_assignment.role is not AssignmentRole.SHADOW
        ):
            self._end(assignment.version)
            version = rollout_assignment.beside_version
            words = f"setting learner.rollouts is {self._parts.allowed}: v{version} is not held beside"
            self._refuse(version, VersionRejected(words, NOT_ALLOWED))
            return
        rollout_part.follow(rollout_assignment, assignment.version, believed)
        if self._challenger is None or self._challenger[0] != rollout_assignment.beside_version:
            self._parts.active.set_challenger(None)
            self._challenger = None
            self._fetch(rollout_assignment, spec)
        else:
            self._refused = (0, "")

    def share(self, registration: Registration, *, last: bool = False) -> None:
        """Tell what was found out, and hear what the learner holds; `last` does not wait for the time."""
        rollout_part = self._parts.rollout_part
        evidence = rollout_part.evidence()
        if evidence is None:
            return
        now = self._parts.clock()
        first = evidence.rollout != self._shared_rollout
        if not first and not evidence.blocks and (evidence.shadow is None or (now < self._due_seconds and not last)):
            return
        try:
            answer = self._learner.share_evidence(registration, evidence)
        except LearnerRefused as error:
            self._count("refused")
            _log.warning("evidence-refused", rollout=evidence.rollout, error=str(error))
            return
        except LearnerUnreachable as error:
            self._count("unanswered")
            _log.debug("evidence-unanswered", error=str(error))
            return
        self._count("taken" if answer.taken else "over")
        self._shared_rollout = evidence.rollout
        self._due_seconds = now + _SHADOW_SECONDS
        rollout_part.on_taken(evidence, answer.next_block, taken=answer.taken)

    def reported(self, status: AgentStatus) -> AgentStatus:
        """A heartbeat's status, with how this agent stands to a rollout; a refused assignment is told first."""
        standing = self._parts.rollout_part.status
        version, reason = (status.refused_version, status.refused_reason) if status.refused_version else self._refused
        return replace(
            status,
            rollout=standing.rollout,
            rollout_role=standing.role,
            beside_version=standing.beside_version,
            refused_version=version,
            refused_reason=reason,
        )

    def copy_of(self, digest: str) -> bytes | None:
        """The policy file of this digest, if it is the one that is kept beside the assigned one."""
        return self._parts.kept.copy_of(digest)

    def forget(self) -> None:
        """Perhaps another learner has taken this one's place: what it refused and held is its own."""
        self._bad.clear()
        self._shared_rollout = 0

    def _end(self, assigned_version: int) -> None:
        self._parts.rollout_part.follow(None, assigned_version, 0.0)
        self._parts.active.set_challenger(None)
        self._refused = (0, "")
        if self._challenger is not None:
            self._challenger = None
            self._parts.kept.forget()

    def _fetch(self, rollout_assignment: RolloutAssignment, spec: WeightSpec) -> None:
        version, trust = rollout_assignment.beside_version, self._parts.source.trust
        left = self._bad.get(version, 0)
        if left:
            self._bad[version] = left - 1
            return
        try:
            fetched = self._learner.fetch_policy(version)
            if trust is not None:
                trust.check_challenger(fetched)
            candidate = checked_candidate(fetched, spec, self._parts.source.factory)
        except (VersionRejected, LearnerRefused) as error:
            self._refuse(version, error)
            self._bad[version] = _BAD_VERSION_BEATS
            return
        except OSError as error:
            _log.warning("fleet-keys-not-kept", version=version, error=str(error))
            return
        self._refused = (0, "")
        self._set_challenger(candidate)
        try:
            self._parts.kept.keep(fetched)
        except OSError as error:
            _log.warning("version-not-kept", version=version, error=str(error))

    def _set_challenger(self, candidate: Candidate) -> None:
        identity = candidate.identity
        self._challenger = (identity.version, identity.digest)
        self._parts.active.set_challenger(candidate, self._parts.believed(identity.digest))

    def _refuse(self, version: int, error: VersionRejected | LearnerRefused) -> None:
        reason = refusal_word(error)
        if (version, reason) != self._refused:
            _log.error("version-beside-rejected", version=version, reason=reason, error=str(error))
            self._telemetry.version_refusals.labels(reason).inc()
        self._refused = (version, reason)

    def _count(self, outcome: str) -> None:
        self._telemetry.evidence_reports.labels(outcome).inc()
