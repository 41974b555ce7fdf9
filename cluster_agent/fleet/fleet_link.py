"""The thread that keeps in touch with the learner: heartbeats, and new versions put forward for office.

Nothing that goes wrong here reaches the loop: the agent goes on with the policy it has, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from cluster_agent.acting.active_policy import ActivePolicy, CandidateFactory
from cluster_agent.backoff import Backoff
from cluster_agent.errors import LearnerRefused, LearnerUnreachable, VersionRejected
from cluster_agent.fleet.learner import AgentStatus, Learner
from cluster_agent.fleet.policy_versions import KeptVersion, checked_candidate
from cluster_agent.fleet.session import RepeatedWork, Session
from cluster_agent.fleet.sharing import Sharing
from cluster_agent.telemetry import Telemetry
from policy_net.exchange.spec import WeightSpec

_log = structlog.get_logger()

_BAD_VERSION_BEATS = 30
"""A version that could not be used is fetched again after so many heartbeats: it may have been the transfer."""


class FleetLink(RepeatedWork):
    """Sends heartbeats and follows assignments until it is stopped.

    Args:
        status: how the agent is now; callable from this thread.
        follow_versions: whether assigned versions act here.
        follow_head: puts the head forward instead, once a heartbeat.
        sharing: tells what this cluster has seen of speeds; None where nobody asks.
    """

    def __init__(
        self,
        learner: Learner,
        session: Session,
        office: ActivePolicy,
        factory: CandidateFactory,
        status: Callable[[], AgentStatus],
        telemetry: Telemetry,
        kept: KeptVersion,
        backoff: Backoff,
        heartbeat_seconds: float,
        follow_versions: bool,
        follow_head: bool,
        sharing: Sharing | None = None,
    ) -> None:
        super().__init__("fleet-link")
        self._learner = learner
        self._session = session
        self._office = office
        self._factory = factory
        self._status = status
        self._telemetry = telemetry
        self._kept = kept
        self._backoff = backoff
        self._heartbeat_seconds = heartbeat_seconds
        self._follow_versions = follow_versions
        self._follow_head = follow_head
        self._sharing = sharing
        self._version: int | None = None
        self._head_step: int | None = None
        self._bad_versions: dict[int, int] = {}
        self._incarnation = 0
        self._reachable = True

    @property
    def reachable(self) -> bool:
        """Whether the latest call was answered."""
        return self._reachable

    def beat(self, *, last: bool = False) -> None:
        """One heartbeat, and what follows from its answer; at the `last` one all that was seen of speeds is told.

        Raises:
            LearnerUnreachable, LearnerRefused: as `Learner`.
        """
        registration = self._session.registered()
        assignment = self._learner.heartbeat(registration.incarnation, self._status())
        if assignment.reregister:
            self._session.forget(registration.incarnation)
            registration = self._session.registered()
            assignment = self._learner.heartbeat(registration.incarnation, self._status())
        if registration.incarnation != self._incarnation:
            # Perhaps another learner has taken this one's place: numbers of versions and steps are its own.
            self._incarnation = registration.incarnation
            self._version, self._head_step = None, None
            self._bad_versions.clear()
        if self._sharing is not None:
            self._sharing.beat(registration, last=last)
        if self._follow_versions:
            self._consider(assignment.version, registration.spec)
        if self._follow_head and assignment.head_step != self._head_step:
            head = self._learner.pull_head(registration, self._head_step)
            if head is not None:
                self._head_step = head.step
                self._office.propose(self._factory.from_head(registration.spec, head.weights, head.step))

    def _consider(self, version: int, spec: WeightSpec) -> None:
        """Fetch, check and put forward an assigned version that is not in office yet."""
        if version in (0, self._version):
            return
        if self._bad_versions.get(version, 0) > 0:
            self._bad_versions[version] -= 1
            return
        try:
            fetched = self._learner.fetch_policy(version)
            candidate = checked_candidate(fetched, spec, self._factory)
        except (VersionRejected, LearnerRefused) as error:
            self._bad_versions[version] = _BAD_VERSION_BEATS
            self._telemetry.rejected_versions.inc()
            _log.error("version-rejected", version=version, error=str(error))
            return
        # Numbers are a learner's own: the first beat compares content, in case this is another learner's v1.
        holder = self._office.holder.identity
        if (candidate.identity.digest, version) != (holder.digest, holder.version):
            self._office.propose(candidate)
        self._version = version
        try:
            self._kept.keep(fetched)
        except OSError as error:
            _log.warning("version-not-kept", version=version, error=str(error))

    def _at_end(self) -> None:
        """A last heartbeat, if the learner is there."""
        if self._reachable:
            self._attempt(last=True)

    def _attempt(self, *, last: bool = False) -> float:
        """One beat; returns how long to wait for the next."""
        try:
            self.beat(last=last)
        except LearnerUnreachable as error:
            if self._reachable:
                _log.warning("learner-away", error=str(error))
            self._reachable = False
            return self._backoff.next_seconds()
        except LearnerRefused as error:
            self._session.refusals.refused("heartbeat", error)
            return self._backoff.next_seconds()
        except Exception:
            # A fault of ours must not end the heartbeats for good, nor pass unseen.
            _log.exception("heartbeat-failed")
            return self._backoff.next_seconds()
        if not self._reachable:
            _log.info("learner-back")
        self._reachable = True
        self._session.refusals.answered("heartbeat")
        self._backoff.reset()
        return self._heartbeat_seconds
