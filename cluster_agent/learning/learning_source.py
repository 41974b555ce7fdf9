"""Source of a cluster's gradients: its twin, or what decisions brought, by the settings, the policy and the learner.

Live gradients teach `dl2`, and a `set` policy next to nothing; replays of the cluster's past teach `set`, and no other
kind (docs/results/twin_learning.md). What decides here may be of another kind tomorrow, and the learner of another
mode, so the choice is made anew whenever somebody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.settings import AgentSettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.exchange.spec import SetSpec, WeightSpec
from policy_net.learning.replay import Experience

_log = structlog.get_logger()


class LearningSource:
    """What `learning.source` comes to; callable from any thread.

    `acting_spec` is None for a scheduler without weights, which nobody teaches; `rounds` is False while not known.
    """

    def __init__(
        self,
        settings: AgentSettings,
        acting_spec: Callable[[], WeightSpec | None],
        rounds: Callable[[], bool],
        telemetry: AgentTelemetry,
    ) -> None:
        self._source = settings.learning.source
        self._has_log = settings.decision_log.enabled
        self._acting_spec = acting_spec
        self._rounds = rounds
        self._telemetry = telemetry
        self._reported: tuple[bool, str] | None = None
        self._lock = threading.Lock()

    @property
    def may_be_twin(self) -> bool:
        """Whether a twin may ever teach under these settings."""
        return self._source == "twin" or (self._source == "auto" and self._has_log)

    def live_into(self, queue: ExperienceQueue) -> Callable[[Experience], None]:
        """What takes experience, and leaves it in the queue while that is what teaches."""

        def take(experience: Experience) -> None:
            if not self.is_twin():
                queue.put(experience)

        return take

    def is_twin(self) -> bool:
        """Whether gradients come from the twin now; says so once, until it is otherwise."""
        found, reason = self._chosen()
        if reason:
            with self._lock:
                changed = self._reported != (found, reason)
                self._reported = (found, reason)
            if changed:
                self._telemetry.from_twin.set(float(found))
                _log.info("learning-source", source="twin" if found else "live", chosen=self._source, reason=reason)
        return found

    def _chosen(self) -> tuple[bool, str]:
        """Whether it is the twin, and why; no reason while nothing decides that can be taught."""
        if self._source != "auto":
            return self._source == "twin", "learning.source says so"
        spec = self._acting_spec()
        if spec is None:
            return False, ""
        if not isinstance(spec, SetSpec):
            return False, f"the policy is of kind {spec.policy}"
        if not self._has_log:
            return False, "decision_log.enabled is off, and a twin replays what that log shows"
        if self._rounds():
            return False, "the learner works in rounds, which are answered from live experience"
        return True, f"the policy is of kind {spec.policy}"
