"""The agent, put together from its settings and run to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, DeadlineAsker
from cluster_agent.backends.base import AgentParts, BackendStatus, backend_module
from cluster_agent.errors import NoPolicy
from cluster_agent.fleet.assignment_follower import AssignmentFollower, AssignmentParts
from cluster_agent.fleet.fleet_link import FleetLink, FleetTasks, Follows
from cluster_agent.fleet.learner_client import AgentStatus, LearnerClient
from cluster_agent.fleet.policy_versions import KeptVersion, PolicySource, fetched_policy, local_policy
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.fleet.sharing import Sharing, SketchSharing
from cluster_agent.guard import Guard
from cluster_agent.learning.comparing import PastComparer, comparer_of
from cluster_agent.learning.experience import BelievedReward, ExperienceQueue
from cluster_agent.learning.learning_source import LearningSource, LessonBudget, TwinSource
from cluster_agent.learning.noise import UpdateNoise
from cluster_agent.learning.rounds import RoundLink, RoundWork
from cluster_agent.learning.trainer import TrainedPolicy, Trainer, TrainingCounts
from cluster_agent.loop import Deciding, DecisionLoop, DecisionRecords, Lessons
from cluster_agent.recording.decision_log import DecisionLog, DecisionRecorder
from cluster_agent.recording.job_timelines import JobTimelines
from cluster_agent.recording.load_history import KEPT, LoadCurve, LoadHistory
from cluster_agent.recording.memory import AgentMemory
from cluster_agent.recording.state_files import lock_folder, write_json
from cluster_agent.rollout.block_twins import twins_of
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.settings import Acting, AgentSettings, LearnerConnectionSettings
from cluster_agent.telemetry import GAP_SECONDS, AgentTelemetry, Health
from foundation.backoff import Backoff
from foundation.clocks import AwakeClock
from policy_net.domain import PolicyContext
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.secrets_in_use import what_expired
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import LearnerHead
from policy_net.policy import build_policy
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.parametric import OnlineFit

_log = structlog.get_logger()

SUMMARY = "summary.json"
_PROMPT_SECONDS = 2.0
"""After a signal, experience may take this long to reach the learner: whoever stops an agent waits for it."""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The parts that exist only where there is a learner."""

    client: LearnerClient
    link: FleetLink
    trainer: Trainer | None
    rounds: RoundLink | None
    comparer: PastComparer | None


class Agent:
    """One cluster's agent; `run` it once.

    Building it reads every file that the settings name, and may fetch a first policy; nothing runs yet.

    Raises:
        BadConfig, BadInput, StateDamaged, NoPolicy: something that it needs cannot be used, or is not there.
    """

    def __init__(self, settings: AgentSettings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._telemetry = AgentTelemetry()
        self._lock = lock_folder(settings.state_dir)
        self._queue = ExperienceQueue(settings.learning.queue_decisions) if settings.learns else None
        self._health = Health(
            settings.telemetry.alive_seconds,
            AwakeClock(GAP_SECONDS),
            lambda: self._backend.not_ready or what_expired(self._telemetry.secrets, time.time()),
        )
        self._wait = self._health.reported_by(stop.wait)
        self._twins = twins_of(settings)
        parts = AgentParts(
            settings.state_dir,
            settings.guard.fallback,
            self._queue,
            self._wait,
            time.monotonic,
            self._telemetry,
            None if self._twins is None else self._twins.unanswered,
        )
        self._beliefs = OnlineFit()
        self._backend = backend_module(settings.backend.kind).open_backend(settings.backend, parts)
        learner, trust = settings.learner, None
        if learner is not None:
            unsigned = learner.unsigned_versions == "allow"
            trust = FleetTrust(settings.state_dir, settings.cluster, unsigned, time.time)
        self._source = PolicySource(
            settings.policy, CandidateFactory(settings.policy, settings.cluster), KeptVersion(settings.state_dir), trust
        )
        learning = settings.learning
        self._reward = BelievedReward(learning.actor_critic.reward, self._beliefs, learning.residual.utility_exponent)
        first = local_policy(self._source)
        if learner is None or trust is None:
            if first is None:
                raise NoPolicy("no policy to schedule with: set policy.initial, or a learner to fetch one from")
            self._active = self._build_active(first)
            self._loop = self._build_loop(None)
            self._fleet = None
        else:
            client, session = self._connect(learner, first, trust)
            if first is None:
                access = LearnerAccess(client, session, self._telemetry, self._backoff(learner, 0))
                longest_seconds = learner.retry.maximum_seconds
                first = fetched_policy(self._source, access, longest_seconds, time.monotonic, stop.wait)
            self._active = self._build_active(first)
            source = LearningSource(settings, lambda: self._active.assigned.spec, session.in_rounds, self._telemetry)
            self._loop = self._build_loop(source)
            self._fleet = self._build_fleet(learner, client, session, source)

    def run(self) -> None:
        """Schedule until the cluster is done or the agent is told to stop; then end in good order.

        Raises:
            BadConfig: the metrics port is taken; nothing has started then.
        """
        port = self._telemetry.serve(self._settings.telemetry, self._health)
        self._backend.start()
        if self._fleet is not None:
            for part in (self._fleet.link, self._fleet.trainer, self._fleet.rounds, self._fleet.comparer):
                if part is not None:
                    part.start()
        _log.info(
            "agent-started",
            cluster=self._settings.cluster,
            policy=self._active.assigned.identity.name,
            decisions_before=self._loop.decisions,
            metrics_port=port,
        )
        try:
            self._loop.run()
        finally:
            self._end()

    def status(self) -> AgentStatus:
        """What a heartbeat says; callable from any thread."""
        jobs = self._backend.status()
        trainer = None if self._fleet is None else self._fleet.trainer
        return AgentStatus(
            cluster=jobs,
            decisions=self._loop.decisions,
            acting_version=self._active.acting.identity.version,
            learning_step=0 if trainer is None else trainer.head_step,
            interventions=self._loop.interventions,
            finished=self._backend.finished,
            baseline_policy=self._backend.baseline_policy,
            job_timelines=() if self._timelines is None else self._timelines.latest,
            load=self._reported_load(jobs),
            replayed=None if self._fleet is None or self._fleet.comparer is None else self._fleet.comparer.latest,
        )

    def _reported_load(self, jobs: BackendStatus) -> tuple[LoadCurve, ...]:
        learner = self._settings.learner
        if learner is None or not learner.tell_load:
            return ()
        idle = not jobs.jobs_running + jobs.jobs_waiting
        curve = None if self._load is None else self._load.curve(jobs.time_seconds, nobody=idle)
        return jobs.load if curve is None else (curve,)

    def _build_active(self, first: Candidate) -> ActivePolicy:
        deadline_seconds = self._settings.guard.deadline_ms / 1000.0
        askers = DeadlineAsker(deadline_seconds), DeadlineAsker(deadline_seconds)
        return ActivePolicy(first, self._beliefs, self._settings.sharing.shares, askers)

    def _build_loop(self, source: LearningSource | None) -> DecisionLoop:
        settings = self._settings
        memory = AgentMemory(settings.state_dir, self._beliefs, self._active, settings.sharing.shares)
        self._challenger_believed = memory.challenger_believed
        self._telemetry.own_statistics.set_function(lambda: len(self._reward.statistics()))
        self._telemetry.prior_statistics.set_function(self._prior_size)
        fallback = build_policy(settings.guard.fallback, PolicyContext(seed=settings.policy.seed))
        record = settings.decision_log
        recorder = None
        if record.enabled:
            log = DecisionLog(settings.state_dir, record.max_bytes, record.keep, record.keep_policies)
            recorder = DecisionRecorder(log, fallback, settings.policy)
        followed = 0 if settings.learner is None else settings.learner.job_timelines
        self._timelines = JobTimelines(followed, resumed=memory.decisions > 0) if followed else None
        reports_load = settings.learner is not None and settings.learner.tell_load
        # A simulated cluster's clock begins anew with every run through its work, which only its backend can tell.
        follows_load = reports_load and settings.backend.kind != "simulated"
        self._load = LoadHistory(file=settings.state_dir / KEPT) if follows_load else None
        deadline_seconds = settings.guard.deadline_ms / 1000.0
        guard = Guard(fallback, deadline_seconds, memory.interventions, memory.monitor)
        self._rollout_part = RolloutPart(
            settings.state_dir,
            settings.cluster,
            self._active,
            self._beliefs,
            time.time,
            self._telemetry.log_failures.inc,
            self._twins,
        )
        self._watch_rollout(self._rollout_part)
        # A simulated cluster's clock stands still while somebody thinks; a live one's does not.
        patience_seconds = deadline_seconds if settings.backend.kind == "simulated" else 0.0
        return DecisionLoop(
            self._backend,
            Deciding(self._active, guard, self._rollout_part, patience_seconds),
            DecisionRecords(memory, recorder, self._timelines, self._load),
            Lessons(self._reward, None if self._queue is None or source is None else source.live_into(self._queue)),
            self._telemetry,
            self._wait,
        )

    def _connect(
        self, learner: LearnerConnectionSettings, first: Candidate | None, trust: FleetTrust
    ) -> tuple[LearnerClient, Session]:
        calls = self._telemetry.learner_calls
        client = LearnerClient(
            learner,
            self._settings.cluster,
            lambda name, outcome: calls.labels(name, outcome).inc(),
            self._settings.state_dir / "identity",
            on_enrolled=trust.on_enrolled,
            on_replaced=self._telemetry.secrets.on_replaced,
        )
        self._telemetry.secrets.add(*client.secrets)
        self._telemetry.timestamp_expiry.set_function(lambda: trust.timestamp_expires)
        spec_digest = "" if first is None else first.spec_to_register
        job_types = [name for name in self._backend.job_types if self._settings.sharing.shares(name)]
        return client, Session(client, spec_digest, job_types, cluster=self._settings.cluster)

    def _build_fleet(
        self, learner: LearnerConnectionSettings, client: LearnerClient, session: Session, source: LearningSource
    ) -> _Fleet:
        settings = self._settings

        def access(thread: int) -> LearnerAccess:
            return LearnerAccess(client, session, self._telemetry, self._backoff(learner, thread))

        follows_head = settings.policy.acting is Acting.HEAD
        trainer, rounds = None, None
        budget = LessonBudget(settings.learning.twin.cpu_percent)
        if self._queue is not None:
            policy = TrainedPolicy(lambda: self._active.assigned.spec, self._propose_head if follows_head else None)
            private = settings.privacy is not None
            noise = None if settings.privacy is None else UpdateNoise(settings.privacy, settings.state_dir)
            twin = None
            if source.may_be_twin:
                twin = TwinSource(
                    settings.learning,
                    settings.cluster,
                    settings.state_dir,
                    self._acting_priors,
                    self._telemetry,
                    budget=budget,
                    applies=source.is_twin,
                )
            trainer = Trainer(
                access(1), self._queue, settings.learning, settings.cluster, policy, time.monotonic, noise, twin
            )
            rounds = RoundLink(access(3), RoundWork(trainer.segments, settings.learning, private=private).answer)
        follows = Follows.VERSIONS if settings.policy.acting is Acting.ASSIGNED else Follows.NOTHING
        if follows_head and trainer is None:
            follows = Follows.HEAD
        sharing = Sharing(client, settings.sharing, self._reward.statistics, self._telemetry, time.monotonic)
        sketching = SketchSharing(client, settings.state_dir, learner.workload_sketch, time.monotonic)
        parts = AssignmentParts(
            self._active,
            self._rollout_part,
            self._source,
            KeptVersion(settings.state_dir, challenger=True),
            learner.rollouts,
            self._challenger_believed,
            time.monotonic,
        )
        rollouts = AssignmentFollower(client, parts, self._telemetry) if follows is Follows.VERSIONS else None
        if rollouts is not None:
            rollouts.resume()
        tasks = FleetTasks(
            heartbeat_seconds=learner.heartbeat_seconds,
            follows=follows,
            sharing=sharing,
            sketching=sketching,
            rollouts=rollouts,
        )
        link = FleetLink(access(2), self._active, self._source, self.status, tasks)
        return _Fleet(client, link, trainer, rounds, comparer_of(settings, budget))

    def _watch_rollout(self, rollout_part: RolloutPart) -> None:
        self._telemetry.beside_version.set_function(lambda: rollout_part.status.beside_version)
        self._telemetry.rollout_number.set_function(lambda: rollout_part.status.rollout)
        self._telemetry.evidence_blocks.set_function(lambda: rollout_part.blocks_waiting)

    def _acting_priors(self) -> tuple[SpeedStatistic, ...]:
        policy = self._active.assigned.policy
        return policy.priors if isinstance(policy, SetPolicy) else ()

    def _prior_size(self) -> int:
        beliefs = self._active.assigned.beliefs
        return 0 if beliefs is None else beliefs.prior_size

    def _propose_head(self, head: LearnerHead, spec: WeightSpec) -> None:
        self._active.propose(self._source.factory.from_head(spec, head.weights, head.step))

    def _backoff(self, learner: LearnerConnectionSettings, thread: int) -> Backoff:
        """Waits of one thread of this cluster: other clusters draw others, or they would all knock at once."""
        return retry_backoff(learner.retry, f"{self._settings.cluster}/{thread}")

    def _end(self) -> None:
        """Bring experience to the learner, say good-bye, write the summary."""
        training = TrainingCounts()
        fleet = self._fleet
        self._rollout_part.stop_twin()
        if fleet is not None:
            flush_seconds = self._settings.learning.flush_seconds
            if self._stop.is_set():
                flush_seconds = min(flush_seconds, _PROMPT_SECONDS)
            if fleet.trainer is not None:
                fleet.trainer.finish(flush_seconds if fleet.link.reachable else 0.0)
                training = fleet.trainer.counts
            for part in (fleet.rounds, fleet.comparer):
                if part is not None:
                    part.finish(_PROMPT_SECONDS)
            # An agent that ends by itself is in no hurry: whoever looks on should see how it ended.
            fleet.link.finish(max(_PROMPT_SECONDS, flush_seconds if fleet.link.reachable else 0.0))
            fleet.client.close()
        self._loop.close()
        self._backend.close()
        status = self.status()
        _write_summary(self._settings.state_dir / SUMMARY, self._settings.cluster, status, training)
        _log.info(
            "agent-ended",
            cluster=self._settings.cluster,
            finished=status.finished,
            jobs_done=status.cluster.jobs_done,
            avg_jct_seconds=round(status.cluster.avg_jct_seconds, 1),
            decisions=status.decisions,
            acknowledged=training.acknowledged,
        )
        self._lock.release()


def _write_summary(path: Path, cluster: str, status: AgentStatus, training: TrainingCounts) -> None:
    jobs = status.cluster
    content = {
        "cluster": cluster,
        "finished": status.finished,
        "jobs": jobs.jobs_total,
        "completed": jobs.jobs_done,
        "avg_jct_seconds": jobs.avg_jct_seconds,
        "baseline_jct_seconds": jobs.baseline_jct_seconds,
        "decisions": status.decisions,
        "guard_interventions": dict(status.interventions),
        "acting_version": status.acting_version,
        "updates": {name: getattr(training, name) for name in training.__slots__}
        | {"rejected": dict(training.rejected)},
    }
    write_json(path, content, indent=2)


def run_agent(settings: AgentSettings, stop: threading.Event, on_built: Callable[[], None] = lambda: None) -> None:
    """Build an agent, call `on_built`, and run it to its end or until `stop` is set.

    Raises:
        BadConfig, BadInput, StateDamaged, NoPolicy: as `Agent`.
    """
    agent = Agent(settings, stop)
    on_built()
    agent.run()
