"""The thread that keeps in touch with the learner: heartbeats, and new versions proposed to act.

Nothing that goes wrong here reaches the loop: the agent goes on with the policy it has, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import structlog

from cluster_agent.active_policy import ActivePolicy
from cluster_agent.errors import NameContested
from cluster_agent.fleet.assignment_follower import AssignmentFollower
from cluster_agent.fleet.learner_client import AgentStatus
from cluster_agent.fleet.policy_versions import PolicySource, refusal_word
from cluster_agent.fleet.session import LearnerAccess, RepeatedWork
from cluster_agent.fleet.sharing import Sharing, SketchSharing
from policy_net.errors import LearnerRefused, LearnerUnreachable, VersionRejected
from policy_net.exchange.signed_documents import Distrust
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import Assignment, FetchedPolicy, Registration

_log = structlog.get_logger()

_BAD_VERSION_BEATS = 30
"""A version that could not be used is fetched again after so many heartbeats: it may have been the transfer."""


Checked = TypeVar("Checked")


class Follows(StrEnum):
    """What a heartbeat's answer may put in the active policy's place."""

    VERSIONS = "versions"
    """The version that the learner assigned."""
    HEAD = "head"
    """The newest weights, once a heartbeat."""
    NOTHING = "nothing"
    """Nothing: the active policy is chosen elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTasks:
    """The link's work and its rhythm; None where a part is not wanted."""

    heartbeat_seconds: float
    follows: Follows
    sharing: Sharing | None = None
    sketching: SketchSharing | None = None
    rollouts: AssignmentFollower | None = None


class FleetLink(RepeatedWork):
    """Sends heartbeats and follows assignments until it is stopped; `status` is called from its thread."""

    def __init__(
        self,
        access: LearnerAccess,
        active: ActivePolicy,
        source: PolicySource,
        status: Callable[[], AgentStatus],
        tasks: FleetTasks,
    ) -> None:
        super().__init__("fleet-link")
        self._learner = access.learner
        self._session = access.session
        self._telemetry = access.telemetry
        self._backoff = access.backoff
        self._active = active
        self._source = source
        self.status = status
        self._tasks = tasks
        self._version: int | None = None
        self._head_step: int | None = None
        self._bad_versions: dict[int, int] = {}
        self._refused = (0, "")
        self._given_back = ("", 0)
        """The digest that was looked for last, and for how many heartbeats not again."""
        self._incarnation = 0
        self.reachable = True

    def beat(self, *, last: bool = False) -> None:
        """One heartbeat, and what follows from its answer; at the `last` one all that was seen of speeds is told.

        Raises:
            LearnerUnreachable, LearnerRefused: as `LearnerClient`.
        """
        registration = self._session.registered()
        assignment = self._learner.heartbeat(registration.incarnation, self._reported())
        if assignment.reregister:
            self._session.forget(registration.incarnation)
            registration = self._session.registered()
            assignment = self._learner.heartbeat(registration.incarnation, self._reported())
        if registration.incarnation != self._incarnation:
            # Perhaps another learner has taken this one's place: numbers of versions and steps are its own.
            self._incarnation = registration.incarnation
            self._version, self._head_step = None, None
            self._bad_versions.clear()
            if self._tasks.rollouts is not None:
                self._tasks.rollouts.forget()
        if self._tasks.sharing is not None:
            self._tasks.sharing.beat(registration, last=last)
        if self._tasks.sketching is not None:
            self._tasks.sketching.beat(registration)
        if assignment.lost_digest:
            self._give_back(assignment.lost_digest, registration)
        if self._tasks.follows is Follows.VERSIONS:
            self._follow_all(assignment, registration, last=last)
        if self._tasks.follows is Follows.HEAD and assignment.head_step != self._head_step:
            head = self._learner.pull_head(registration, self._head_step)
            if head is not None:
                self._head_step = head.step
                self._active.propose(self._source.factory.from_head(registration.spec, head.weights, head.step))

    def _give_back(self, digest: str, registration: Registration) -> None:
        """Give the learner a policy file that it lost, if it is kept here."""
        known, beats = self._given_back
        if digest == known and beats:
            self._given_back = (digest, beats - 1)
            return
        rollouts = self._tasks.rollouts
        data = self._source.kept.copy_of(digest)
        if data is None and rollouts is not None:
            data = rollouts.copy_of(digest)
        try:
            taken = data is not None and self._learner.return_policy(registration, data)
        except LearnerRefused as error:
            _log.warning("version-not-given-back", digest=digest[:12], error=str(error))
            taken = False
        self._given_back = (digest, _BAD_VERSION_BEATS)
        if taken:
            _log.info("version-given-back", digest=digest[:12])
            self._bad_versions.clear()  # what could not be fetched for want of it can be now

    def _follow_all(self, assignment: Assignment, registration: Registration, *, last: bool) -> None:
        """The assignment, and what a rollout asks beside it."""
        rollouts, trust = self._tasks.rollouts, self._source.trust
        if rollouts is None:
            self._follow(assignment, registration.spec)
            return
        pinned = None if trust is None else trust.pinned
        believed = rollouts.believe(assignment)
        self._follow(assignment, registration.spec)
        if not isinstance(believed, VersionRejected) or (trust is not None and trust.pinned == pinned):
            rollouts.follow(assignment, registration.spec, believed)
        # Otherwise the fleet's keys are known since just now, and the next answer will be believed.
        rollouts.share(registration, last=last)

    def _follow(self, assignment: Assignment, spec: WeightSpec) -> None:
        """Act on what the learner assigns, if it is the fleet that does so, and now."""
        trust, version = self._source.trust, assignment.version
        if trust is None or version != self._version:
            self._consider(assignment, spec)
            return
        try:
            trust.check_assignment(version, assignment.timestamp)
        except VersionRejected:
            # Perhaps a key was rotated since: the way from the one that is known to it comes with a version.
            self._fetched(version, trust.check)
        else:
            self._refused = (0, "")

    def _fetched(self, version: int, check: Callable[[FetchedPolicy], Checked]) -> tuple[FetchedPolicy, Checked] | None:
        """A version's file and what a check makes of it; None where it is put off, or was not believed."""
        if self._is_put_off(version):
            return None
        try:
            fetched = self._learner.fetch_policy(version)
            checked = check(fetched)
        except (VersionRejected, LearnerRefused) as error:
            self._refuse(version, error)
            return None
        except OSError as error:
            _log.warning("fleet-keys-not-kept", version=version, error=str(error))
            return None
        self._refused = (0, "")
        return fetched, checked

    def _is_put_off(self, version: int) -> bool:
        left = self._bad_versions.get(version, 0)
        if left:
            self._bad_versions[version] = left - 1
        return left > 0

    def _refuse(self, version: int, error: VersionRejected | LearnerRefused) -> None:
        reason = refusal_word(error)
        if (version, reason) != self._refused:
            _log.error("version-rejected", version=version, reason=reason, error=str(error))
        self._refused = (version, reason)
        # What is assigned may have changed between two calls; everything else stays as it is for a while.
        self._bad_versions[version] = 0 if reason == Distrust.OTHER_ASSIGNMENT else _BAD_VERSION_BEATS
        self._telemetry.rejected_versions.inc()
        self._telemetry.version_refusals.labels(reason).inc()

    def _reported(self) -> AgentStatus:
        version, reason = self._refused
        status = replace(self.status(), refused_version=version, refused_reason=reason)
        return status if self._tasks.rollouts is None else self._tasks.rollouts.reported(status)

    def _consider(self, assignment: Assignment, spec: WeightSpec) -> None:
        """Fetch, check and propose an assigned version that is not active yet."""
        version = assignment.version
        if version in (0, self._version):
            return
        found = self._fetched(version, lambda fetched: self._source.checked(fetched, spec, assignment.timestamp))
        if found is None:
            return
        fetched, candidate = found
        # Numbers are a learner's own: the first beat compares content, in case this is another learner's v1.
        acting = self._active.assigned.identity
        if (candidate.identity.digest, version) != (acting.digest, acting.version):
            self._active.propose(candidate)
        self._version = version
        try:
            self._source.kept.keep(fetched)
        except OSError as error:
            _log.warning("version-not-kept", version=version, error=str(error))

    def _at_end(self) -> None:
        """A last heartbeat, if the learner is there."""
        if self._tasks.sketching is not None:
            self._tasks.sketching.close()
        if self.reachable:
            self.attempt(last=True)

    def attempt(self, *, last: bool = False) -> float:
        """One beat; returns how long to wait for the next."""
        try:
            self.beat(last=last)
        except NameContested:  # said when the name was lost; the learner is there
            return self._backoff.next_seconds()
        except LearnerUnreachable as error:
            self._session.outage.on_unanswered(error)
            self.reachable = False
            return self._backoff.next_seconds()
        except LearnerRefused as error:
            self._session.refusals.on_refused("heartbeat", error)
            return self._backoff.next_seconds()
        except Exception:
            # A fault of ours must not end the heartbeats for good, nor pass unseen.
            _log.exception("heartbeat-failed")
            return self._backoff.next_seconds()
        self._session.outage.on_answered()
        self.reachable = True
        self._session.refusals.on_answered("heartbeat")
        self._backoff.reset()
        return self._tasks.heartbeat_seconds
