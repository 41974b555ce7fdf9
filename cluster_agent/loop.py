"""The decision loop: observe → decide → guard → apply → progress → reward → experience.

The loop runs in one thread and waits for nothing but the cluster: what it learned is handed to the trainer without
waiting, and what it writes to disk may fail without stopping it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from cluster_agent.acting.active_policy import ActivePolicy, Candidate
from cluster_agent.acting.deadline import DeadlineAsker
from cluster_agent.backends.base import Backend
from cluster_agent.errors import BackendUnavailable
from cluster_agent.guard import Guard, GuardedDecision
from cluster_agent.recording.decision_recorder import Before, DecisionRecorder
from cluster_agent.recording.job_timelines import JobTimelines
from cluster_agent.telemetry import Telemetry
from policy_net.domain import ClusterState, Origin, Progress, Trigger
from policy_net.errors import InvalidAllocation
from policy_net.learning.replay import Experience
from policy_net.policy import Samples

_log = structlog.get_logger()

_BACKEND_RETRY_SECONDS = 5.0
"""Between two questions to a cluster that does not answer: decisions are minutes apart, and it has enough to do."""


class Reward(Protocol):
    """Turns what happened into what is learned from; holds the beliefs."""

    def learn_from(
        self, state: ClusterState, progress: list[Progress], seconds: float, samples: Samples | None
    ) -> tuple[float, Experience | None]:
        """The reward of an interval, and what can be learned from it; the beliefs have seen it afterwards."""
        ...


class Memory(Protocol):
    """What must outlive the agent besides the cluster itself."""

    @property
    def decisions(self) -> int:
        """How many were made in earlier lives of this agent."""
        ...

    def save(self, decisions: int, interventions: Mapping[str, int]) -> None:
        """Keep the counts (and the beliefs)."""
        ...


@dataclass(frozen=True, slots=True)
class Deciding:
    """The policy that decides, the thread in which it does, and the guard behind it."""

    active: ActivePolicy
    guard: Guard
    asker: DeadlineAsker


@dataclass(frozen=True, slots=True)
class Records:
    """Records that are kept of every decision.

    Attributes:
        recorder: of the decision log; None if nothing is logged.
        timelines: follows some jobs for the learner's report; None if nothing about jobs is told.
    """

    memory: Memory
    recorder: DecisionRecorder | None = None
    timelines: JobTimelines | None = None


@dataclass(frozen=True, slots=True)
class Lessons:
    """Lessons of an interval.

    Attributes:
        learn: takes experience without waiting; None if nothing is learned here.
    """

    reward: Reward
    learn: Callable[[Experience], None] | None = None


class DecisionLoop:
    """Runs decisions until the backend has no more of them.

    Args:
        wait: waits up to so many seconds; True when the agent is to stop.
    """

    def __init__(
        self,
        backend: Backend,
        deciding: Deciding,
        records: Records,
        lessons: Lessons,
        telemetry: Telemetry,
        wait: Callable[[float], bool],
    ) -> None:
        self._backend = backend
        self._active = deciding.active
        self._guard = deciding.guard
        self._asker = deciding.asker
        self._memory = records.memory
        self._recorder = records.recorder
        self._timelines = records.timelines
        self._reward = lessons.reward
        self._learn = lessons.learn
        self._telemetry = telemetry
        self._wait = wait
        self._previous_reward: float | None = None
        self.decisions = records.memory.decisions

    @property
    def interventions(self) -> Mapping[str, int]:
        """The guard's interventions, by reason, over all lives of this agent."""
        return self._guard.counts

    def close(self) -> None:
        """Remember what the last interval taught, close what the loop writes to, and let the policy's thread end."""
        try:
            self._memory.save(self.decisions, self._guard.counts)
        except OSError as error:
            self._telemetry.log_failures.inc()
            _log.error("memory-not-saved", error=str(error))
        self._asker.close()
        if self._recorder is not None:
            self._recorder.close()

    def run(self) -> None:
        """Decide until the backend is finished or the agent is to stop."""
        while not self._backend.finished:
            try:
                if not self._decide_once():
                    return
            except (BackendUnavailable, InvalidAllocation) as error:
                # Invalid in spite of the guard: the cluster has changed since it was observed.
                self._telemetry.backend_failures.inc()
                _log.warning("backend-unavailable", error=str(error))
                if self._wait(_BACKEND_RETRY_SECONDS):
                    return

    def _decide_once(self) -> bool:
        """One decision and what came of it; False when the agent is to stop."""
        observed = self._backend.observe()
        if observed is None:
            return False
        state, trigger = observed
        number = self.decisions
        candidate, fresh = self._active.begin_decision(number)
        if fresh:
            _log.info("policy-activated", policy=candidate.identity.name, version=candidate.identity.version)
        before = None
        if self._recorder is not None:
            before = self._recorder.begin(number, candidate, fresh=fresh, busy=self._asker.busy)
        guarded = self._guard.decide(partial(self._asker.ask, candidate.policy), state, trigger)
        self.decisions += 1
        self._keep(state, trigger, candidate, guarded, before)
        origin = Origin(candidate.identity.name, number)
        progress = self._backend.apply(replace(guarded.decision, origin=origin))
        seconds = self._backend.time_seconds - state.time_seconds
        reward = self._learn_from(state, progress, seconds, candidate, guarded)
        self._previous_reward = reward
        self._telemetry.decided(guarded, reward, candidate.identity.version)
        _log.info(
            "decision-made",
            number=number,
            time_seconds=round(state.time_seconds, 3),
            trigger=trigger.value,
            jobs=len(state.jobs),
            policy=candidate.identity.name,
            tasks=sum(grant.tasks for grant in guarded.decision.allocation.values()),
            interventions=[intervention.value for intervention in guarded.interventions],
            detail=guarded.detail,
            decide_ms=round(1000 * guarded.decide_seconds, 2),
            reward=None if reward is None else round(reward, 4),
        )
        return True

    def _keep(
        self,
        state: ClusterState,
        trigger: Trigger,
        candidate: Candidate,
        guarded: GuardedDecision,
        before: Before | None,
    ) -> None:
        """Log and remember; a full disk is reported and does not stop the cluster."""
        try:
            if self._recorder is not None and before is not None:
                self._recorder.write(before, candidate, state, trigger, guarded, self._previous_reward)
            self._memory.save(self.decisions, self._guard.counts)
        except OSError as error:
            self._telemetry.log_failures.inc()
            _log.error("decision-not-logged", number=self.decisions - 1, error=str(error))

    def _learn_from(
        self,
        state: ClusterState,
        progress: list[Progress],
        seconds: float,
        candidate: Candidate,
        guarded: GuardedDecision,
    ) -> float | None:
        """Show everybody what happened; a decision that the guard changed teaches beliefs, never the actor.

        A fault in here is reported and costs this interval's lesson, not the cluster its scheduler.
        """
        try:
            samples = guarded.samples if guarded.trainable else None
            if self._timelines is not None:
                interventions = [intervention.value for intervention in guarded.interventions]
                self._timelines.on_interval(state, progress, seconds, interventions)
            reward, experience = self._reward.learn_from(state, progress, seconds, samples)
            if self._learn is not None and experience is not None:
                self._learn(experience)
            self._guard.fallback.observe(progress)
            free = not self._asker.busy
            if free:
                candidate.policy.observe(progress)
            if self._recorder is not None:
                self._recorder.on_observed(progress, candidate, by_policy=free)
        except Exception:
            if self._recorder is not None:
                self._recorder.on_observations_lost()
            self._telemetry.lesson_failures.inc()
            _log.exception("lesson-failed", number=self.decisions - 1)
            return None
        return reward
