"""The learner as an agent asks it over gRPC: a `FleetClient`, with what only agents say of themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

from cluster_agent.backends.base import BackendStatus
from cluster_agent.recording.job_timelines import JobTimeline
from cluster_agent.recording.load_history import LoadCurve, ReplayedPast
from cluster_agent.rollout.alternation import FinishedBlock
from cluster_agent.rollout.assignment_state import Evidence
from cluster_agent.settings import LearnerConnectionSettings
from policy_net.exchange.fleet_client import FleetClient, Observer
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.learner_connection import LearnerAddress, OnEnrolled
from policy_net.exchange.other_server import CallerWords
from policy_net.exchange.wire import Assignment, Registration, RoundAnswer, RoundTask, reply_request, task_of_round
from policy_net.exchange.workload_sketch import WorkloadSketch


@dataclass(frozen=True, slots=True)
class EvidenceAnswer:
    """Fate of a rollout's evidence; the learner holds all blocks below `next_block`.

    It is not `taken` if that rollout is over, or asks nothing of this cluster.
    """

    taken: bool
    next_block: int


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """What a heartbeat says.

    Attributes:
        baseline_policy: whose average JCT `cluster.baseline_jct_seconds` is.
        job_timelines, load, replayed: empty or None where the operator lets none be told, or nothing is known yet.
        refused_version: assigned, or to be held beside the assigned one, and not acted with; 0 for none.
        refused_reason: a word for why.
        rollout: whose assignment is done now; 0 for none. `rollout_role` says how, `beside_version` what is held ready.
    """

    cluster: BackendStatus
    decisions: int
    acting_version: int
    learning_step: int
    interventions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    finished: bool = False
    baseline_policy: str = ""
    job_timelines: Sequence[JobTimeline] = ()
    load: Sequence[LoadCurve] = ()
    replayed: ReplayedPast | None = None
    refused_version: int = 0
    refused_reason: str = ""
    rollout: int = 0
    rollout_role: str = ""
    beside_version: int = 0


WORDS = CallerWords(
    "learner",
    "learner",
    "agent",
    "set learner.enroll_address to the HOST:PORT of a learner's `identity.enroll_port`",
    "name this agent's enrollment file (learner.enrollment_file) or certificates (learner.tls)",
    "enroll this agent with that learner, or name its certificates in learner.tls",
    "leave out learner.tls and learner.enrollment_file, or name another address",
)
"""An agent's settings, for lines about a port that is no learner's."""
_OTHERWISE = ("cluster", "interventions", "job_timelines", "load", "replayed", "baselines")
"""Fields of a status that a heartbeat has in another form; the others have the same names."""
_MOST_BLOCKS = 64
"""Of evidence in one call; what is left comes with the next heartbeats."""


def address_of(settings: LearnerConnectionSettings, cluster: str, folder: Path) -> LearnerAddress:
    """The learner that the settings name; `folder` is where an identity that it gives is kept."""
    tls = settings.tls
    return LearnerAddress(
        (settings.address, *settings.further_addresses),
        cluster,
        folder,
        WORDS,
        settings.retry.call_seconds,
        settings.enrollment_file,
        settings.enroll_address,
        None if tls is None else (tls.ca_file, tls.certificate_file, tls.key_file),
    )


class LearnerClient(FleetClient):
    """The learner at an address.

    Every call raises `LearnerUnreachable` if no answer came in time, and `LearnerRefused` if the answer was no.
    """

    def __init__(
        self,
        settings: LearnerConnectionSettings,
        cluster: str,
        observe: Observer,
        folder: Path = Path("identity"),
        clock: Callable[[], float] = time.time,
        on_enrolled: OnEnrolled = lambda _: None,
        on_replaced: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(address_of(settings, cluster, folder), observe, clock, on_enrolled, on_replaced)

    def heartbeat(self, incarnation: int, status: AgentStatus) -> Assignment:
        """Say how things are."""
        jobs = status.cluster
        message = fleet_pb2.ClusterStatus(
            **{each.name: getattr(jobs, each.name) for each in fields(jobs) if each.name not in _OTHERWISE},
            **{each.name: getattr(status, each.name) for each in fields(status) if each.name not in _OTHERWISE},
            guard_interventions=dict(status.interventions),
            job_timelines=[_timeline(timeline) for timeline in status.job_timelines],
            load=[fleet_pb2.LoadCurve(**asdict(curve)) for curve in status.load],
            baselines=_baselines(jobs.baselines),
            replayed=None if status.replayed is None else _replayed(status.replayed),
        )
        return self.beat(incarnation, message)

    def poll(self, registration: Registration) -> RoundTask | None:
        """What a round asks of this cluster; waits a second or so for it."""
        request = fleet_pb2.PollRequest(cluster=self._cluster, incarnation=registration.incarnation)
        reply = self._call("Poll", self._connection.fleet().Poll, request)
        if not reply.HasField("task"):
            return None
        with self._checking("Poll"):
            return task_of_round(reply.task)

    def reply(self, registration: Registration, answer: RoundAnswer) -> bool:
        """Answer a task; False if it is over."""
        request = reply_request(answer, self._cluster, registration.incarnation)
        return bool(self._call("Reply", self._connection.fleet().Reply, request).taken)

    def share_evidence(self, registration: Registration, evidence: Evidence) -> EvidenceAnswer:
        """Tell what was found out in a rollout; telling it again is safe."""
        request = fleet_pb2.ShareEvidenceRequest(
            cluster=self._cluster, incarnation=registration.incarnation, rollout=evidence.rollout
        )
        request.blocks.extend(_block(block) for block in evidence.blocks[:_MOST_BLOCKS])
        if evidence.shadow is not None:
            request.shadow.CopyFrom(evidence.shadow.message())
        reply = self._call("ShareEvidence", self._connection.fleet().ShareEvidence, request)
        return EvidenceAnswer(reply.taken, reply.next_block)

    def share_sketch(self, registration: Registration, sketch: WorkloadSketch | None) -> bool:
        """Tell what kind of work this cluster has, in place of what was told before; None: have it forgotten.

        False if the learner holds just that already.
        """
        request = fleet_pb2.ShareSketchRequest(
            cluster=self._cluster,
            incarnation=registration.incarnation,
            sketch=None if sketch is None else sketch.message(),
        )
        return bool(self._call("ShareSketch", self._connection.fleet().ShareSketch, request).taken)

    def return_policy(self, registration: Registration, data: bytes) -> bool:
        """Give a policy file back that the learner lost; False if it misses none like it."""
        request = fleet_pb2.ReturnPolicyRequest(
            cluster=self._cluster, incarnation=registration.incarnation, policy_file=data
        )
        return bool(self._call("ReturnPolicy", self._connection.fleet().ReturnPolicy, request).taken)


def _baselines(seconds: Mapping[str, float]) -> list[fleet_pb2.BaselineTime]:
    return [fleet_pb2.BaselineTime(policy=policy, avg_jct_seconds=each) for policy, each in seconds.items()]


def _replayed(past: ReplayedPast) -> fleet_pb2.ReplayedPast:
    return fleet_pb2.ReplayedPast(
        begin_seconds=past.begin_seconds,
        end_seconds=past.end_seconds,
        jobs=past.jobs,
        avg_jct_seconds=past.avg_jct_seconds,
        twin_jct_seconds=past.twin_jct_seconds,
        baselines=_baselines(past.baselines),
        load=[fleet_pb2.LoadCurve(**asdict(curve)) for curve in past.load],
    )


def _timeline(timeline: JobTimeline) -> fleet_pb2.JobTimeline:
    message = fleet_pb2.JobTimeline
    return message(
        number=timeline.number,
        job_type=timeline.job_type,
        held=[message.Held(seconds=at, workers=workers, ps=ps) for at, workers, ps in timeline.sizes],
        interventions=[message.Intervention(seconds=at, reason=reason) for at, reason in timeline.interventions],
        resizes=timeline.resizes,
        seconds=timeline.seconds,
        completed=timeline.completed,
    )


def _block(block: FinishedBlock) -> fleet_pb2.SwitchbackBlock:
    content = asdict(block)
    twin = content.pop("twin")
    del content["whole_jobs"]
    message = fleet_pb2.SwitchbackBlock(**content)
    if twin is not None:
        message.has_twin = True
        message.twin_priced, message.twin_incumbent, message.twin_candidate = twin
    return message
