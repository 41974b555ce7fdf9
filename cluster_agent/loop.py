"""The decision loop: observe → decide → guard → apply → progress → reward → experience.

The loop runs in one thread and waits for nothing but the cluster: what it learned is handed to the trainer without
waiting, and what it writes to disk may fail without stopping it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from cluster_agent.active_policy import ActivePolicy, Turn
from cluster_agent.backends.base import Backend
from cluster_agent.errors import BackendUnavailable
from cluster_agent.guard import Guard
from cluster_agent.recording.decision_log import DecisionRecorder
from cluster_agent.recording.job_timelines import JobTimelines
from cluster_agent.recording.load_history import LoadHistory
from cluster_agent.recording.memory import AgentMemory
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import ClusterState, DecisionOrigin, Job, JobKind, Progress
from policy_net.errors import InvalidAllocation
from policy_net.learning.replay import Experience
from policy_net.policy import Samples
from policy_net.throughput.beliefs import measured_kinds, type_of_kind
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import OnlineFit

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


@dataclass(frozen=True, slots=True)
class Deciding:
    """The policies that decide, the guard behind them, and the agent's part in a rollout, which says whose turn it is.

    `patience_seconds` is the longest wait for a challenger's decision once an interval is over: 0 on a live cluster, as
    that is later than any deadline; a simulated cluster's clock stands still meanwhile.
    """

    active: ActivePolicy
    guard: Guard
    rollout_part: RolloutPart
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DecisionRecords:
    """Records of every decision, for the log and for the learner's report; None where one is not wanted."""

    memory: AgentMemory
    recorder: DecisionRecorder | None = None
    timelines: JobTimelines | None = None
    load: LoadHistory | None = None


@dataclass(frozen=True, slots=True)
class Lessons:
    """Lessons of an interval; `learn` takes experience without waiting, None if nothing is learned here."""

    reward: Reward
    learn: Callable[[Experience], None] | None = None


class KindNames:
    """Names for types that jobs of both kinds have, so that their speeds do not mix; see `type_of_kind`.

    The kind that a type has first keeps its name; what this agent has measured says it also after a restart.
    """

    def __init__(self, beliefs: OnlineFit, given: Callable[[], Sequence[str]]) -> None:
        """`given` are the names that users gave."""
        self._measured = measured_kinds(beliefs)
        self._given = given
        self._kinds: dict[str, JobKind] = {}
        self._renamed: dict[str, str] = {}
        self._reported: set[str] = set()

    def named_by_kind(self, state: ClusterState) -> ClusterState:
        """The state with a name of its own for a type's other kind."""
        self._renamed = {job.job_id: name for job in state.jobs if (name := self._name(job, state)) != job.job_type}
        if not self._renamed:
            return state
        jobs = tuple(replace(job, job_type=self._renamed.get(job.job_id, job.job_type)) for job in state.jobs)
        return replace(state, jobs=jobs)

    def renamed(self, progress: list[Progress]) -> list[Progress]:
        """What jobs of that state did, by the same names."""
        if not self._renamed:
            return progress
        return [replace(entry, job_type=self._renamed.get(entry.job_id, entry.job_type)) for entry in progress]

    def _name(self, job: Job, state: ClusterState) -> str:
        def given() -> set[str]:
            return {*self._given(), *(each.job_type for each in state.jobs)}

        name = type_of_kind(job.job_type, job.kind, lambda name: self._measured(name) or self._kinds.get(name), given)
        self._kinds.setdefault(name, job.kind)
        if name != job.job_type and name not in self._reported:
            self._reported.add(name)
            _log.info("kinds-apart", type=job.job_type, kind=job.kind.value, known_as=name)
        return name


class DecisionLoop:
    """Runs decisions until the backend has no more of them; `wait` returns True when the agent is to stop."""

    def __init__(
        self,
        backend: Backend,
        deciding: Deciding,
        records: DecisionRecords,
        lessons: Lessons,
        telemetry: AgentTelemetry,
        wait: Callable[[float], bool],
    ) -> None:
        self._backend = backend
        self._active = deciding.active
        self._guard = deciding.guard
        self._rollout_part = deciding.rollout_part
        self._patience_seconds = deciding.patience_seconds
        self._memory = records.memory
        self._kinds = KindNames(records.memory.beliefs, lambda: backend.job_types)
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
        self._active.close()
        self._rollout_part.close()
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
        """One decision from the observed state to what came of it; False when the agent is to stop.

        Raises:
            BackendUnavailable, InvalidAllocation: as `Backend`.
        """
        observed = self._backend.observe()
        if observed is None:
            return False
        state, trigger = self._kinds.named_by_kind(observed[0]), observed[1]
        turn = self._active.begin_turn(self.decisions, state, trigger, self._rollout_part.challenger_decides)
        if turn.activated:
            _log.info("policy-activated", policy=turn.identity.name, version=turn.identity.version)
        if self._recorder is not None:
            self._recorder.begin(turn)
        turn.guarded = self._guard.decide(turn.acting.ask(state, trigger), state, trigger, turn.acting.candidate.kind)
        self.decisions += 1
        self._record(turn)
        # The challenger is asked once the decision is made and recorded; its answer is read when the interval is over.
        answer = None if turn.challenger is None else turn.challenger.begin(state, trigger)
        decision = replace(turn.guarded.decision, origin=DecisionOrigin(turn.identity.name, turn.number))
        try:
            done = self._backend.apply(decision)
            turn.progress = [_believable(entry) for entry in self._kinds.renamed(done)]
        finally:
            if answer is not None and turn.challenger is not None:
                kind = turn.challenger.candidate.kind
                turn.challenged = self._guard.judge_challenger(answer(self._patience_seconds), state, kind)
            self._rollout_part.ended(turn)
        self._previous_reward = self._learn_from(turn, turn.progress)
        self._report(turn, self._previous_reward)
        return True

    def _record(self, turn: Turn) -> None:
        """Log and remember a decision before it is carried out; a full disk is reported, and stops no cluster."""
        self._rollout_part.decided(turn)
        try:
            if self._recorder is not None:
                self._recorder.write(turn, self._previous_reward)
            self._memory.save(self.decisions, self._guard.counts)
        except OSError as error:
            self._telemetry.log_failures.inc()
            _log.error("decision-not-logged", number=turn.number, error=str(error))

    def _learn_from(self, turn: Turn, progress: list[Progress]) -> float | None:
        """Show everybody what happened; a decision that the guard changed teaches beliefs, never the actor.

        A fault in here is reported and costs this interval's lesson, not the cluster its scheduler.
        """
        state, guarded = turn.state, turn.guarded
        seconds = self._backend.time_seconds - state.time_seconds
        try:
            if self._timelines is not None:
                interventions = [intervention.value for intervention in guarded.interventions]
                self._timelines.on_interval(state, progress, seconds, interventions)
            if self._load is not None:
                self._load.on_interval(state, progress, seconds)
            samples = guarded.samples if guarded.trainable else None
            reward, experience = self._reward.learn_from(state, progress, seconds, samples)
            if self._learn is not None and experience is not None:
                self._learn(experience)
            self._guard.fallback.observe(progress)
            shown = []
            if not turn.acting.busy:
                turn.acting.candidate.policy.observe(progress)
                shown.append("policy")
                self._report_doubts(turn.acting.candidate.beliefs)
            challenger = turn.challenger
            if challenger is not None and not challenger.busy:
                fault = challenger.show(progress)
                if fault is None:
                    shown.append("beside")
                else:
                    self._telemetry.lesson_failures.inc()
                    name = challenger.candidate.identity.name
                    _log.error("lesson-failed", policy=name, number=turn.number, error=repr(fault))
            if self._recorder is not None:
                self._recorder.on_observed(turn, shown)
        except Exception:
            self._telemetry.lesson_failures.inc()
            _log.exception("lesson-failed", number=turn.number)
            return None
        return reward

    def _report_doubts(self, beliefs: GaussianProcessBeliefs | None) -> None:
        for entry in [] if beliefs is None else beliefs.doubted:
            self._telemetry.doubted_reports.inc()
            _log.warning(
                "report-doubted",
                job=entry.job_id,
                type=entry.job_type,
                samples_per_second=round(entry.samples / entry.seconds, 3),
                workers=entry.allocation.workers,
                ps=entry.allocation.ps,
                meaning="far from what jobs of its type do; nothing is learned of it: is it of another type?",
            )

    def _report(self, turn: Turn, reward: float | None) -> None:
        """Count the decision, and log its canonical line."""
        guarded, challenged = turn.guarded, turn.challenged
        self._telemetry.decided(guarded, reward, turn.identity.version)
        otherwise = None
        if challenged is not None and challenged.decision is None:
            otherwise = "nothing"
        elif challenged is not None and challenged.decision is not None:
            same = challenged.decision.allocation == guarded.decision.allocation
            otherwise = "same" if same else "differently"
        _log.info(
            "decision-made",
            number=turn.number,
            time_seconds=round(turn.state.time_seconds, 3),
            trigger=turn.trigger.value,
            jobs=len(turn.state.jobs),
            policy=turn.identity.name,
            otherwise=otherwise,
            tasks=sum(grant.tasks for grant in guarded.decision.allocation.values()),
            interventions=[intervention.value for intervention in guarded.interventions],
            detail=guarded.detail,
            decide_ms=round(1000 * guarded.decide_seconds, 2),
            reward=None if reward is None else round(reward, 4),
        )


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
