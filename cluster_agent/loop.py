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

from cluster_agent.acting.active_policy import ActivePolicy, Candidate, Turn
from cluster_agent.acting.deadline import DeadlineAsker
from cluster_agent.backends.base import Backend
from cluster_agent.errors import BackendUnavailable
from cluster_agent.guard import Guard, GuardedDecision
from cluster_agent.recording.decision_recorder import Before, DecisionRecorder, Held
from cluster_agent.recording.job_timelines import JobTimelines
from cluster_agent.recording.load_history import LoadHistory
from cluster_agent.rollout.beside import Beside, show
from cluster_agent.rollout.conduct import Conduct
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
class Alternative:
    """A second policy beside the assigned one: whose turn it is, and the way to ask it."""

    conduct: Conduct
    beside: Beside


@dataclass(frozen=True, slots=True)
class Deciding:
    """The policy that decides, the thread in which it does, and the guard behind it.

    Attributes:
        alternative: what a rollout may ask; None where nobody could.
    """

    active: ActivePolicy
    guard: Guard
    asker: DeadlineAsker
    alternative: Alternative | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """Records that are kept of every decision.

    Attributes:
        recorder: of the decision log; None if nothing is logged.
        timelines: follows some jobs for the learner's report; None if nothing about jobs is told.
        load: follows GPUs in use and jobs that wait, for the same; None if that is not told, or the backend does.
    """

    memory: Memory
    recorder: DecisionRecorder | None = None
    timelines: JobTimelines | None = None
    load: LoadHistory | None = None


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
        self._alternative = deciding.alternative
        self._memory = records.memory
        self._recorder = records.recorder
        self._timelines = records.timelines
        self._load = records.load
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
        if self._alternative is not None:
            self._alternative.beside.close()
            self._alternative.conduct.close()
        if self._recorder is not None:
            self._recorder.close()

    def run(self) -> None:
        """Decide until the backend is finished or the agent is to stop."""
        while not self._backend.finished:
            try:
                if not self.decide_once():
                    return
            except (BackendUnavailable, InvalidAllocation) as error:
                # Invalid in spite of the guard: the cluster has changed since it was observed.
                self._telemetry.backend_failures.inc()
                _log.warning("backend-unavailable", error=str(error))
                if self._wait(_BACKEND_RETRY_SECONDS):
                    return

    def decide_once(self) -> bool:
        """One decision and what came of it; False when the agent is to stop.

        Raises:
            BackendUnavailable, InvalidAllocation: as `Backend`.
        """
        observed = self._backend.observe()
        if observed is None:
            return False
        state, trigger = observed
        number = self.decisions
        turn = self._begin_turn(state, number)
        candidate = turn.acting
        if turn.activated:
            _log.info("policy-activated", policy=candidate.identity.name, version=candidate.identity.version)
        asker, other_asker = self._askers(candidate)
        before = None
        if self._recorder is not None:
            held = None if turn.other is None else Held(turn.other, other_asker.busy)
            before = self._recorder.begin(number, candidate, fresh=turn.fresh, busy=asker.busy, held=held)
        guarded = self._guard.decide(partial(asker.ask, candidate.policy), state, trigger)
        self.decisions += 1
        self._keep(state, trigger, candidate, guarded, before)
        if self._alternative is not None and turn.other is not None:
            self._alternative.beside.ask(number, turn.other, other_asker, state, trigger)
        origin = Origin(candidate.identity.name, number)
        try:
            progress = [_believable(entry) for entry in self._backend.apply(replace(guarded.decision, origin=origin))]
        finally:
            other = self._other_decided(state, guarded, before)
        seconds = self._backend.time_seconds - state.time_seconds
        if self._alternative is not None:
            self._alternative.conduct.carried_out(state, progress)
        reward = self._learn_from(state, progress, seconds, turn, guarded)
        self._previous_reward = reward
        self._telemetry.decided(guarded, reward, candidate.identity.version)
        _log.info(
            "decision-made",
            number=number,
            time_seconds=round(state.time_seconds, 3),
            trigger=trigger.value,
            jobs=len(state.jobs),
            policy=candidate.identity.name,
            otherwise=other,
            tasks=sum(grant.tasks for grant in guarded.decision.allocation.values()),
            interventions=[intervention.value for intervention in guarded.interventions],
            detail=guarded.detail,
            decide_ms=round(1000 * guarded.decide_seconds, 2),
            reward=None if reward is None else round(reward, 4),
        )
        return True

    def _begin_turn(self, state: ClusterState, number: int) -> Turn:
        if self._alternative is None:
            return self._active.begin_turn(number)
        return self._alternative.conduct.begin(state, number)

    def _askers(self, acting: Candidate) -> tuple[DeadlineAsker, DeadlineAsker]:
        """Who asks the acting policy, and who the other: each has its own, so that one that hangs holds up no other."""
        if self._alternative is None:
            return self._asker, self._asker
        beside = self._alternative.beside.asker
        return (beside, self._asker) if acting is self._active.beside else (self._asker, beside)

    def _other_decided(self, state: ClusterState, guarded: GuardedDecision, before: Before | None) -> str | None:
        """Take down what the policy beside would have done; a word on it for the log line."""
        if self._alternative is None:
            return None
        decided = self._alternative.beside.answer()
        if decided is None:
            return None
        self._alternative.conduct.compared(state, guarded, decided)
        if self._recorder is not None and before is not None:
            self._recorder.on_beside(decided.to_json(before.held_digest))
        if decided.decision is None:
            return "nothing"
        return "same" if decided.decision.allocation == guarded.decision.allocation else "differently"

    def _keep(
        self,
        state: ClusterState,
        trigger: Trigger,
        candidate: Candidate,
        guarded: GuardedDecision,
        before: Before | None,
    ) -> None:
        """Log and remember; a full disk is reported and does not stop the cluster."""
        rollout = None
        if self._alternative is not None:
            self._alternative.conduct.decided(guarded)
            rollout = self._alternative.conduct.words_for_log()
        try:
            if self._recorder is not None and before is not None:
                self._recorder.write(before, candidate, state, trigger, guarded, self._previous_reward, rollout)
            self._memory.save(self.decisions, self._guard.counts)
        except OSError as error:
            self._telemetry.log_failures.inc()
            _log.error("decision-not-logged", number=self.decisions - 1, error=str(error))

    def _learn_from(
        self,
        state: ClusterState,
        progress: list[Progress],
        seconds: float,
        turn: Turn,
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
            if self._load is not None:
                self._load.on_interval(state, progress, seconds)
            reward, experience = self._reward.learn_from(state, progress, seconds, samples)
            if self._learn is not None and experience is not None:
                self._learn(experience)
            self._guard.fallback.observe(progress)
            asker, other_asker = self._askers(turn.acting)
            free = not asker.busy
            if free:
                turn.acting.policy.observe(progress)
            held = None if other_asker.busy else turn.other
            if self._recorder is not None:
                self._recorder.on_observed(progress, turn.acting, by_policy=free, by_held=self._shown(held, progress))
            else:
                self._shown(held, progress)
        except Exception:
            if self._recorder is not None:
                self._recorder.on_observations_lost()
            self._telemetry.lesson_failures.inc()
            _log.exception("lesson-failed", number=self.decisions - 1)
            return None
        return reward

    def _shown(self, held: Candidate | None, progress: list[Progress]) -> Candidate | None:
        """Show the policy beside the acting one what jobs did; None if it was not shown, or could not take it."""
        if held is None:
            return None
        fault = show(held, progress)
        if fault is None:
            return held
        self._telemetry.lesson_failures.inc()
        _log.error("lesson-failed", policy=held.identity.name, number=self.decisions - 1, error=repr(fault))
        return None


def _believable(entry: Progress) -> Progress:
    """What a job did, without a speed that no machine has: it would go to the beliefs of the whole fleet."""
    if entry.is_possible:
        return entry
    _log.warning(
        "progress-impossible",
        job=entry.job_id,
        samples=entry.samples,
        seconds=entry.seconds,
        workers=entry.allocation.workers,
        meaning="no machine trains so fast; nothing is learned of it",
    )
    return entry.unmeasured
