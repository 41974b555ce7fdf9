"""Service `Fleet` of fleet.proto: what agents call. Translates; the learner decides."""

# ruff: noqa: N802  # methods and their parameters are named by fleet.proto
from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from global_learner.enrollment.registrar import Registrar
from global_learner.errors import BadRequest
from global_learner.folded_lines import OTHERS, FoldedLines, Later, on_loop
from global_learner.identity import CallerIdentity
from global_learner.learner import Learner
from global_learner.pushes import UpdateAnswer
from global_learner.registry.cards import signed_message
from global_learner.report.savings import latest_comparison
from global_learner.service.admission import Context, Pause, answered, pause
from global_learner.service.heartbeats import ClustersAhead, VersionRefusals, check_status
from global_learner.telemetry import LearnerTelemetry
from policy_net.errors import SpecMismatch
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.wire import (
    PUSH_OUTCOMES,
    GradientUpdate,
    gradient_update,
    round_answer,
    round_task,
    serialized_with_weights,
)

_log = structlog.get_logger()

_MAX_JOB_TYPES = 4096
_MAX_NAME_CHARACTERS = 253
_MAX_STATISTICS = 64


# Log lines of pushed updates: one each, and of a flood that changes nothing the first and how many followed.
#
# What is answered faster than its cluster may send updates (`is_beyond_rate`), a duplicate or a rejection, is told of
# by number. Every update is counted all the same (`fedl2_learner_updates_total`, `fedl2_learner_rejections_total`).


class PushLines:
    """The canonical line of each update, for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, later: Later = on_loop) -> None:
        self._lines: FoldedLines[tuple[str, str]] = FoldedLines(lambda key: (OTHERS, key[1]), _log_folded, clock, later)

    def on_answer(self, update: GradientUpdate, answer: UpdateAnswer, seconds: float) -> None:
        """Log an update, or count it into the line to come; `seconds` are what it took."""
        if answer.is_beyond_rate and not self._lines.first((update.cluster, answer.reason or answer.outcome)):
            return
        _log.info(
            "update-answered",
            cluster=update.cluster,
            incarnation=update.incarnation,
            sequence=update.sequence,
            outcome=answer.outcome.value,
            reason=answer.reason or None,
            detail=answer.detail or None,
            base_step=update.base_step,
            head_step=answer.head_step,
            staleness=answer.staleness,
            active_clusters=answer.active_clusters,
            learning_rate=answer.learning_rate,
            gradient_norm=round(answer.gradient_norm, 6),
            clipped=answer.clipped or None,
            samples=update.samples,
            effective_samples=round(update.effective_samples, 1),
            milliseconds=round(seconds * 1000.0, 2),
        )


def _log_folded(key: tuple[str, str], updates: int, seconds: float) -> None:
    cluster, outcome = key
    _log.warning("updates-answered", cluster=cluster, outcome=outcome, updates=updates, seconds=round(seconds, 1))


class FleetService(fleet_pb2_grpc.FleetServicer):
    """Answers the agents."""

    def __init__(
        self,
        learner: Learner,
        identity: CallerIdentity,
        registrar: Registrar,
        telemetry: LearnerTelemetry,
        clock: Callable[[], float],
        pause: Pause = pause,
    ) -> None:
        self.telemetry = telemetry
        self._learner = learner
        self._identity = identity
        self._registrar = registrar
        self._clock = clock
        self._pause = pause
        self._push_lines = PushLines()
        self._ahead = ClustersAhead(learner.operator.note_ahead, clock)
        self._refusals = VersionRefusals(learner.operator.note_refusal, telemetry, clock)

    @answered
    async def Register(self, request: fleet_pb2.RegisterRequest, context: Context) -> fleet_pb2.RegisterReply:
        """A new incarnation, the spec, and what the cluster is to act with."""
        cluster = self._caller(request.cluster, context)
        if len(request.job_types) > _MAX_JOB_TYPES or not all(_is_name(name) for name in request.job_types):
            raise BadRequest(
                f"more than {_MAX_JOB_TYPES} job types, or one that is empty, longer than {_MAX_NAME_CHARACTERS} "
                "characters or with control characters in it"
            )
        was_contested = self._is_contested(cluster)
        registration = await self._learner.register(cluster, request.spec_digest, request.job_types)
        if self._is_contested(cluster) and not was_contested:
            _log.error(
                "cluster-name-contested",
                cluster=cluster,
                error=f"two agents call themselves {cluster}, and take the name from each other",
                advice="give each cluster a name of its own (cluster: in its agent's configuration), or stop one agent",
                peer=context.peer(),
            )
        _log.info(
            "cluster-registered",
            cluster=cluster,
            incarnation=registration.incarnation,
            assigned_version=registration.assigned_version,
            peer=context.peer(),
        )
        spec = self._learner.spec
        return fleet_pb2.RegisterReply(
            incarnation=registration.incarnation,
            spec_json=spec.to_json(),
            spec_digest=spec.digest,
            head_step=self._learner.log.durable_step,
            assigned_version=registration.assigned_version,
            learning=True,
            rounds=self._learner.rounds is not None,
            timestamp=self._timestamp(cluster, registration.assigned_version, registration.rollout_assignment),
            duty=None if registration.rollout_assignment is None else registration.rollout_assignment.message(),
            fleets=self._learner.lineage,
        )

    @answered
    async def PullHead(self, request: fleet_pb2.PullHeadRequest, context: Context) -> bytes:
        """The newest head that is on disk: a `PullHeadReply`'s bytes."""
        cluster = self._caller(request.cluster, context)
        have_step = request.have_step if request.have else None
        step, weights = await self._learner.pushes.pull(cluster, request.incarnation, have_step)
        reply = fleet_pb2.PullHeadReply(step=step, spec_digest=self._learner.spec.digest, unchanged=weights is None)
        return serialized_with_weights(reply, weights or b"")

    @answered
    async def Push(self, request: fleet_pb2.PushRequest, context: Context) -> bytes:
        """Apply an update once; answered when it is on disk, with a `PushReply`'s bytes."""
        started = self._clock()
        cluster = self._caller(request.cluster, context)
        if len(request.statistics) > _MAX_STATISTICS:
            raise BadRequest(f"{len(request.statistics)} statistics; at most {_MAX_STATISTICS} are taken")
        request.cluster = cluster
        try:
            update = gradient_update(request)
        except SpecMismatch as error:
            raise BadRequest(str(error)) from error
        answer = await self._learner.pushes.push(update, request.want_weights)
        self._push_lines.on_answer(update, answer, self._clock() - started)
        if answer.is_beyond_rate:
            await self._pause()
        reply = fleet_pb2.PushReply(
            outcome=PUSH_OUTCOMES[answer.outcome],
            reason=answer.reason,
            head_step=answer.head_step,
            staleness=answer.staleness,
        )
        return serialized_with_weights(reply, answer.weights or b"")

    @answered
    async def Heartbeat(self, request: fleet_pb2.HeartbeatRequest, context: Context) -> fleet_pb2.HeartbeatReply:
        """Note how a cluster is; tell it what it is to act with."""
        cluster = self._caller(request.cluster, context)
        check_status(request.status)
        learner = self._learner
        if learner.fleet.get(cluster) is not None:  # also of an incarnation that a restored state does not know
            newest = learner.maintenance.newest_version
            await self._ahead.on_status(cluster, request.status, newest, learner.head.step)
        entry = self._learner.fleet.on_heard(cluster, request.incarnation)
        if entry is None:
            return fleet_pb2.HeartbeatReply(reregister=True, head_step=self._learner.log.durable_step)
        self._learner.fleet.on_status(entry, request.status)
        entry.compared = latest_comparison(entry.compared, request.status)
        await self._refusals.on_status(cluster, request.status)
        self._learner.fleet.on_answered(entry)
        return fleet_pb2.HeartbeatReply(
            assigned_version=entry.assigned_version,
            head_step=self._learner.log.durable_step,
            timestamp=self._timestamp(cluster, entry.assigned_version, entry.rollout_assignment),
            duty=None if entry.rollout_assignment is None else entry.rollout_assignment.message(),
            fleets=self._learner.lineage,
            lost_digest=learner.operator.lost_digest(request.status.acting_version, request.status.beside_version),
        )

    @answered
    async def ReturnPolicy(
        self, request: fleet_pb2.ReturnPolicyRequest, context: Context
    ) -> fleet_pb2.ReturnPolicyReply:
        """Put a version's policy file back that the learner lost; answered when it is on disk."""
        cluster = self._caller(request.cluster, context)
        self._learner.fleet.check_registered(cluster, request.incarnation)
        taken = await self._learner.operator.take_back(request.policy_file, cluster)
        return fleet_pb2.ReturnPolicyReply(taken=taken)

    @answered
    async def ShareEvidence(
        self, request: fleet_pb2.ShareEvidenceRequest, context: Context
    ) -> fleet_pb2.ShareEvidenceReply:
        """Keep what a cluster found out about a rollout's candidate; answered when it is on disk."""
        cluster = self._caller(request.cluster, context)
        self._learner.fleet.check_registered(cluster, request.incarnation)
        taken, next_block = await self._learner.rollouts.on_evidence(cluster, request)
        return fleet_pb2.ShareEvidenceReply(taken=taken, next_block=next_block)

    @answered
    async def ShareBeliefs(
        self, request: fleet_pb2.ShareBeliefsRequest, context: Context
    ) -> fleet_pb2.ShareBeliefsReply:
        """Keep what a cluster has seen of speeds, in place of what it said before; answered when it is on disk."""
        cluster = self._caller(request.cluster, context)
        beliefs = self._learner.beliefs
        self._learner.fleet.check_registered(cluster, request.incarnation)
        taken = await beliefs.on_report(cluster, request.incarnation, request.revision, request.types)
        summary = beliefs.summary(cluster)
        return fleet_pb2.ShareBeliefsReply(taken=taken, statistics=summary.statistics, left_out=summary.left_out)

    @answered
    async def ShareSketch(self, request: fleet_pb2.ShareSketchRequest, context: Context) -> fleet_pb2.ShareSketchReply:
        """Keep what kind of work a cluster has, in place of what it said before; answered when it is on disk."""
        cluster = self._caller(request.cluster, context)
        self._learner.fleet.check_registered(cluster, request.incarnation)
        sketch = request.sketch if request.HasField("sketch") else None
        return fleet_pb2.ShareSketchReply(taken=await self._learner.rollouts.gate.on_sketch(cluster, sketch))

    @answered
    async def FetchPolicy(self, request: fleet_pb2.FetchPolicyRequest, context: Context) -> fleet_pb2.FetchPolicyReply:
        """A version's policy file, for whoever the connection let in."""
        entry = None
        if request.cluster:
            entry = self._learner.fleet.get(self._caller(request.cluster, context))
        else:
            self._identity.anybody(context.auth_context())
        card, data = await self._learner.registry.call(self._learner.registry.registry.policy_bytes, request.version)
        return fleet_pb2.FetchPolicyReply(
            version=card.version,
            policy_file=data,
            digest=card.digest,
            name=f"v{card.version}",
            signed=signed_message(card),
            timestamp=None
            if entry is None
            else self._timestamp(entry.cluster, entry.assigned_version, entry.rollout_assignment),
            roots=[root.message() for root in self._registrar.roots],
        )

    @answered
    async def RenewCertificate(
        self, request: fleet_pb2.RenewCertificateRequest, context: Context
    ) -> fleet_pb2.CertificateReply:
        """The next certificate of the cluster that the present one names."""
        presented = context.auth_context()
        cluster = self._caller(request.cluster, context)
        grant = await self._registrar.renew(cluster, self._identity.fingerprint(presented), request.signing_request)
        return self._registrar.reply(grant)

    @answered
    async def Poll(self, request: fleet_pb2.PollRequest, context: Context) -> fleet_pb2.PollReply:
        """What a round asks of a cluster; waits a while for it."""
        cluster = self._caller(request.cluster, context)
        task = await self._learner.poll(cluster, request.incarnation)
        return fleet_pb2.PollReply(task=None if task is None else round_task(task))

    @answered
    async def Reply(self, request: fleet_pb2.ReplyRequest, context: Context) -> fleet_pb2.ReplyReply:
        """A cluster's answer to a round."""
        cluster = self._caller(request.cluster, context)
        if len(request.metrics) > _MAX_STATISTICS or any(not math.isfinite(v) for v in request.metrics.values()):
            raise BadRequest(f"more than {_MAX_STATISTICS} metrics, or one that is not finite")
        try:
            answer = round_answer(request)
        except SpecMismatch as error:
            raise BadRequest(str(error)) from error
        return fleet_pb2.ReplyReply(taken=self._learner.round_answer(cluster, request.incarnation, answer))

    def _caller(self, claimed: str, context: Context) -> str:
        """The calling cluster; whoever is not the active learner answers none, be it with a refusal of an update."""
        self._learner.check_active()
        return self._identity.cluster(claimed, context.auth_context())

    def _is_contested(self, cluster: str) -> bool:
        fleet = self._learner.fleet
        entry = fleet.get(cluster)
        return entry is not None and fleet.is_contested(entry)

    def _timestamp(
        self, cluster: str, assigned_version: int, rollout_assignment: RolloutAssignment | None
    ) -> fleet_pb2.SignedDocument | None:
        """What a cluster is to act on now; without such a word, on a full disk, it goes on with what it has."""
        signing = self._learner.operator.signing
        if signing is None:
            return None
        try:
            return signing.timestamp(cluster, assigned_version, rollout_assignment).message()
        except OSError as error:
            _log.error("timestamp-not-signed", cluster=cluster, error=str(error))
            return None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME_CHARACTERS and text.isprintable()
