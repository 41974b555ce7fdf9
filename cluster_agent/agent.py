"""One agent, put together from its settings and run to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cluster_agent.acting.active_policy import ActivePolicy, Candidate, CandidateFactory
from cluster_agent.acting.deadline import DeadlineAsker
from cluster_agent.backends.simulated.backend import Baseline, SimulatedBackend
from cluster_agent.backends.simulated.episodes import load_episodes
from cluster_agent.backends.simulated.pace import build_pacer
from cluster_agent.backoff import Backoff
from cluster_agent.errors import NoPolicy
from cluster_agent.fleet.fleet_link import FleetLink
from cluster_agent.fleet.learner import AgentStatus, Head
from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.fleet.policy_versions import KeptVersion, fetched_policy, local_policy
from cluster_agent.fleet.session import Session
from cluster_agent.fleet.sharing import Sharing
from cluster_agent.guard import Guard
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.rounds import RoundLink, RoundWork
from cluster_agent.learning.trainer import OnHead, Trainer
from cluster_agent.loop import DecisionLoop
from cluster_agent.recording.decision_log import DecisionLog
from cluster_agent.recording.job_timelines import JobTimelines
from cluster_agent.recording.memory import AgentMemory, BelievedReward
from cluster_agent.recording.state_files import hold_folder
from cluster_agent.settings import Acting, AgentSettings, LearnerSettings
from cluster_agent.summary import TrainingCounts, write_summary
from cluster_agent.telemetry import Telemetry
from policy_net.domain import PolicyContext
from policy_net.exchange.spec import WeightSpec
from policy_net.policy import build_policy
from policy_net.throughput.parametric import OnlineFit

_log = structlog.get_logger()

_PROMPT_SECONDS = 2.0
"""After a signal, experience may take this long to reach the learner: whoever stops an agent waits for it."""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What exists only where there is a learner."""

    client: LearnerClient
    link: FleetLink
    trainer: Trainer | None
    rounds: RoundLink | None


class Agent:
    """One cluster's agent; `run` it once.

    Building it reads every file that the settings name, and may fetch a first policy; nothing runs yet.

    Raises:
        BadConfig, BadInput, StateDamaged, NoPolicy: something that it needs cannot be used, or is not there.
    """

    def __init__(self, settings: AgentSettings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._telemetry = Telemetry()
        self._lock = hold_folder(settings.state_dir)
        self._queue = ExperienceQueue(settings.learning.queue_decisions) if settings.learns else None
        episodes = load_episodes(settings.backend)
        self._baseline = Baseline(episodes, settings.guard.fallback)
        pacer = build_pacer(settings.backend.pace, self._queue, stop.wait, time.monotonic)
        self._backend = SimulatedBackend(episodes, settings.state_dir, pacer, self._baseline.average_jct_seconds)
        self._factory = CandidateFactory(settings.policy)
        self._kept = KeptVersion(settings.state_dir)
        self._beliefs = OnlineFit()
        learning = settings.learning
        self._reward = BelievedReward(learning.actor_critic.reward, self._beliefs, learning.residual.utility_exponent)
        first = local_policy(settings.policy, self._factory, self._kept)
        if settings.learner is None:
            if first is None:
                raise NoPolicy("no policy to schedule with: set policy.initial, or a learner to fetch one from")
            self._office = self._build_office(first)
            self._loop = self._build_loop()
            self._fleet = None
        else:
            client, session = self._connect(settings.learner, first)
            self._office = self._build_office(first or self._fetch_first(settings.learner, client, session))
            self._loop = self._build_loop()
            self._fleet = self._build_fleet(settings.learner, client, session)

    def run(self) -> None:
        """Schedule until the cluster is done or the agent is told to stop; then end in good order.

        Raises:
            BadConfig: the metrics port is taken; nothing has started then.
        """
        port = self._telemetry.serve(self._settings.telemetry)
        if self._settings.backend.baseline:
            self._baseline.start()
        if self._fleet is not None:
            self._fleet.link.start()
            if self._fleet.trainer is not None:
                self._fleet.trainer.start()
            if self._fleet.rounds is not None:
                self._fleet.rounds.start()
        _log.info(
            "agent-started",
            cluster=self._settings.cluster,
            policy=self._office.holder.identity.name,
            decisions_before=self._loop.decisions,
            metrics_port=port,
        )
        try:
            self._loop.run()
        finally:
            self._end()

    def status(self) -> AgentStatus:
        """What a heartbeat says; callable from any thread."""
        trainer = None if self._fleet is None else self._fleet.trainer
        return AgentStatus(
            cluster=self._backend.status(),
            decisions=self._loop.decisions,
            acting_version=self._office.holder.identity.version,
            learning_step=0 if trainer is None else trainer.head_step,
            interventions=self._loop.interventions,
            finished=self._backend.finished,
            baseline_policy=self._settings.guard.fallback if self._settings.backend.baseline else "",
            job_timelines=() if self._timelines is None else self._timelines.told,
        )

    def _build_office(self, first: Candidate) -> ActivePolicy:
        return ActivePolicy(first, self._beliefs, self._settings.sharing.shares)

    def _build_loop(self) -> DecisionLoop:
        settings = self._settings
        deadline_seconds = settings.guard.deadline_ms / 1000.0
        asker = DeadlineAsker(deadline_seconds, time.perf_counter)
        memory = AgentMemory(
            settings.state_dir,
            self._beliefs,
            lambda: None if asker.busy else self._office.holder.beliefs,
            lambda: self._office.holder.identity.digest,
            settings.sharing.shares,
        )
        self._telemetry.own_statistics.set_function(lambda: len(self._reward.statistics()))
        self._telemetry.prior_statistics.set_function(self._prior_size)
        fallback = build_policy(settings.guard.fallback, PolicyContext(seed=settings.policy.seed))
        record = settings.decision_log
        log = None
        if record.enabled:
            log = DecisionLog(settings.state_dir, record.max_bytes, record.keep, record.keep_policies)
        followed = 0 if settings.learner is None else settings.learner.job_timelines
        self._timelines = JobTimelines(followed, resumed=memory.decisions > 0) if followed else None
        return DecisionLoop(
            backend=self._backend,
            office=self._office,
            guard=Guard(fallback, deadline_seconds, memory.interventions),
            asker=asker,
            reward=self._reward,
            memory=memory,
            telemetry=self._telemetry,
            policy_settings=settings.policy,
            wait=self._stop.wait,
            log=log,
            learn=None if self._queue is None else self._queue.put,
            decisions=memory.decisions,
            timelines=self._timelines,
        )

    def _connect(self, learner: LearnerSettings, first: Candidate | None) -> tuple[LearnerClient, Session]:
        calls = self._telemetry.learner_calls
        client = LearnerClient(
            learner,
            self._settings.cluster,
            lambda name, outcome: calls.labels(name, outcome).inc(),
            self._settings.state_dir / "identity",
        )
        self._telemetry.certificate_expiry.set_function(lambda: client.certificate_expires)
        spec_digest = "" if first is None else first.spec_to_register
        job_types = [name for name in self._backend.job_types if self._settings.sharing.shares(name)]
        return client, Session(client, spec_digest, job_types)

    def _fetch_first(self, learner: LearnerSettings, client: LearnerClient, session: Session) -> Candidate:
        return fetched_policy(
            self._settings.policy,
            self._factory,
            self._kept,
            client,
            session,
            self._backoff(learner, 0),
            learner.retry.maximum_seconds,
            time.monotonic,
            self._stop.wait,
        )

    def _build_fleet(self, learner: LearnerSettings, client: LearnerClient, session: Session) -> _Fleet:
        settings = self._settings
        on_head: OnHead | None = None
        follows_head = settings.policy.acting is Acting.HEAD
        if follows_head:
            on_head = self._put_head_forward
        trainer, rounds = None, None
        if self._queue is not None:
            trainer = Trainer(
                client,
                session,
                self._queue,
                settings.learning,
                settings.cluster,
                lambda: self._office.holder.spec,
                self._telemetry,
                self._backoff(learner, 1),
                time.monotonic,
                on_head,
            )
            work = RoundWork(trainer.segments, settings.learning)
            rounds = RoundLink(client, session, work.answer, self._telemetry, self._backoff(learner, 3))
        link = FleetLink(
            client,
            session,
            self._office,
            self._factory,
            self.status,
            self._telemetry,
            self._kept,
            self._backoff(learner, 2),
            learner.heartbeat_seconds,
            follow_versions=settings.policy.acting is Acting.ASSIGNED,
            follow_head=follows_head and trainer is None,
            sharing=Sharing(client, settings.sharing, self._reward.statistics, self._telemetry, time.monotonic),
        )
        return _Fleet(client, link, trainer, rounds)

    def _prior_size(self) -> int:
        beliefs = self._office.holder.beliefs
        return 0 if beliefs is None else beliefs.prior_size

    def _put_head_forward(self, head: Head, spec: WeightSpec) -> None:
        self._office.propose(self._factory.from_head(spec, head.weights, head.step))

    def _backoff(self, learner: LearnerSettings, thread: int) -> Backoff:
        """Waits of one thread of this cluster: other clusters draw others, or they would all knock at once."""
        return Backoff(learner.retry, f"{self._settings.cluster}/{thread}")

    def _end(self) -> None:
        """Bring experience to the learner, say good-bye, write the summary."""
        training = TrainingCounts()
        fleet = self._fleet
        if fleet is not None:
            flush_seconds = self._settings.learning.flush_seconds
            if self._stop.is_set():
                flush_seconds = min(flush_seconds, _PROMPT_SECONDS)
            if fleet.trainer is not None:
                fleet.trainer.finish(flush_seconds if fleet.link.reachable else 0.0)
                training = fleet.trainer.counts
            if fleet.rounds is not None:
                fleet.rounds.finish(_PROMPT_SECONDS)
            # An agent that ends by itself is in no hurry: whoever looks on should see how it ended.
            fleet.link.finish(max(_PROMPT_SECONDS, flush_seconds if fleet.link.reachable else 0.0))
            fleet.client.close()
        self._loop.close()
        status = self.status()
        write_summary(self._settings.state_dir, self._settings.cluster, status, training)
        _log.info(
            "agent-ended",
            cluster=self._settings.cluster,
            finished=status.finished,
            jobs_done=status.cluster.jobs_done,
            avg_jct_seconds=round(status.cluster.avg_jct_seconds, 1),
            decisions=status.decisions,
            acknowledged=training.acknowledged,
        )
        self._lock.close()


def run_agent(settings: AgentSettings, stop: threading.Event, on_built: Callable[[], None] = lambda: None) -> None:
    """Build an agent and run it to its end.

    Args:
        stop: looked at once the agent is built.
        on_built: is called then.

    Raises:
        BadConfig, BadInput, StateDamaged, NoPolicy: as `Agent`.
    """
    agent = Agent(settings, stop)
    on_built()
    agent.run()
