"""The thread that keeps in touch with the learner: heartbeats, and new versions proposed to act.

Nothing that goes wrong here reaches the loop: the agent goes on with the policy it has, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from cluster_agent.acting.active_policy import ActivePolicy
from cluster_agent.errors import LearnerRefused, LearnerUnreachable, VersionRejected
from cluster_agent.fleet.learner_protocol import AgentStatus
from cluster_agent.fleet.policy_versions import PolicySource, checked_candidate
from cluster_agent.fleet.session import LearnerAccess, RepeatedWork
from cluster_agent.fleet.sharing import Sharing
from policy_net.exchange.spec import WeightSpec

_log = structlog.get_logger()

_BAD_VERSION_BEATS = 30
"""A version that could not be used is fetched again after so many heartbeats: it may have been the transfer."""


class Follows(StrEnum):
    """What a heartbeat's answer may put in the active policy's place."""

    VERSIONS = "versions"
    """The version that the learner assigned."""
    HEAD = "head"
    """The newest weights, once a heartbeat."""
    NOTHING = "nothing"
    """Nothing: the active policy is chosen elsewhere."""


@dataclass(frozen=True, slots=True)
class FleetDuties:
    """The link's work and its rhythm.

    Attributes:
        sharing: reports what this cluster has seen of speeds; None where nobody asks.
    """

    heartbeat_seconds: float
    follows: Follows
    sharing: Sharing | None = None


class FleetLink(RepeatedWork):
    """Sends heartbeats and follows assignments until it is stopped.

    Args:
        status: how the agent is now; callable from this thread.
    """

    def __init__(
        self,
        access: LearnerAccess,
        active: ActivePolicy,
        source: PolicySource,
        status: Callable[[], AgentStatus],
        duties: FleetDuties,
    ) -> None:
        super().__init__("fleet-link")
        self._learner = access.learner
        self._session = access.session
        self._telemetry = access.telemetry
        self._backoff = access.backoff
        self._active = active
        self._source = source
        self._status = status
        self._duties = duties
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
        if self._duties.sharing is not None:
            self._duties.sharing.beat(registration, last=last)
        if self._duties.follows is Follows.VERSIONS:
            self._consider(assignment.version, registration.spec)
        if self._duties.follows is Follows.HEAD and assignment.head_step != self._head_step:
            head = self._learner.pull_head(registration, self._head_step)
            if head is not None:
                self._head_step = head.step
                self._active.propose(self._source.factory.from_head(registration.spec, head.weights, head.step))

    def _consider(self, version: int, spec: WeightSpec) -> None:
        """Fetch, check and propose an assigned version that is not active yet."""
        if version in (0, self._version):
            return
        if self._bad_versions.get(version, 0) > 0:
            self._bad_versions[version] -= 1
            return
        try:
            fetched = self._learner.fetch_policy(version)
            candidate = checked_candidate(fetched, spec, self._source.factory)
        except (VersionRejected, LearnerRefused) as error:
            self._bad_versions[version] = _BAD_VERSION_BEATS
            self._telemetry.rejected_versions.inc()
            _log.error("version-rejected", version=version, error=str(error))
            return
        # Numbers are a learner's own: the first beat compares content, in case this is another learner's v1.
        acting = self._active.current.identity
        if (candidate.identity.digest, version) != (acting.digest, acting.version):
            self._active.propose(candidate)
        self._version = version
        try:
            self._source.kept.keep(fetched)
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
                _log.warning("learner-lost", error=str(error))
            self._reachable = False
            return self._backoff.next_seconds()
        except LearnerRefused as error:
            self._session.refusals.on_refused("heartbeat", error)
            return self._backoff.next_seconds()
        except Exception:
            # A fault of ours must not end the heartbeats for good, nor pass unseen.
            _log.exception("heartbeat-failed")
            return self._backoff.next_seconds()
        if not self._reachable:
            _log.info("learner-returned")
        self._reachable = True
        self._session.refusals.on_answered("heartbeat")
        self._backoff.reset()
        return self._duties.heartbeat_seconds
