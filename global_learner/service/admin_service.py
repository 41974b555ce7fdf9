"""Service `Admin` of fleet.proto: what policyctl and displays ask, and whom the platform owner lets in.

It translates; what is about versions and the head, `Operator` decides.
"""

# ruff: noqa: N802, ARG002  # methods and their parameters are named by fleet.proto

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from global_learner.enrollment.registrar import Registrar
from global_learner.errors import BadRequest
from global_learner.fleet import ClusterEntry
from global_learner.identity import CallerIdentity, checked_name
from global_learner.learner import Learner
from global_learner.registry.cards import version_message
from global_learner.report.events import ACTS, MOST_EVENTS
from global_learner.rollout.rollout_messages import (
    AUTO_ASSIGN_NOTE,
    change_lines,
    overview_message,
    record_message,
    taken_message,
)
from global_learner.rollout.rollout_store import SeenRollout, Taken
from global_learner.rollout.state import RolloutPhase, VersionRole, check_reason
from global_learner.service.admission import Context, answered
from global_learner.storage.audit import Order
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.signed_documents import SignedDocument


async def fleet_message(learner: Learner, registrar: Registrar, *, with_jobs: bool = False) -> fleet_pb2.GetFleetReply:
    """The head and all clusters, as they are now; `with_jobs` also timelines of jobs and curves of load."""
    statuses = {entry.cluster: entry.state for entry in await registrar.clusters()}
    return fleet_pb2.GetFleetReply(
        head_step=learner.log.durable_step,
        updates_accepted=learner.head.ledger.accepted,
        updates_rejected=sum(entry.rejected.total() for entry in learner.fleet.entries()),
        staleness_p50=learner.head.ledger.staleness_p50,
        clusters=[
            _cluster_view(learner, entry, with_jobs, statuses.get(entry.cluster, ""))
            for entry in learner.fleet.entries()
        ],
        latest_version=learner.maintenance.newest_version,
        disk_bytes=await learner.disk_use(),
        log_limit_bytes=learner.maintenance.max_log_bytes,
        disk_full=str(learner.disk_full or ""),
        upstream=learner.upstream_view(),
        privacy=fleet_pb2.Privacy(**learner.privacy) if learner.privacy else None,
        away_seconds=learner.rollouts.away_seconds,
        tries_people=True,
        numbers_through=learner.operator.numbers_through,
        damaged_files=[
            fleet_pb2.DamagedFile(version=version, is_head=is_head)
            for version, is_head in learner.operator.damaged_files
        ],
    )


def _cluster_view(learner: Learner, entry: ClusterEntry, with_jobs: bool, identity: str) -> fleet_pb2.ClusterView:
    record = learner.head.ledger.clusters.get(entry.cluster)
    speeds = learner.beliefs.summary(entry.cluster)
    view = fleet_pb2.ClusterView(
        cluster=entry.cluster,
        incarnation=entry.incarnation,
        seconds_since_heard=learner.fleet.seconds_since_heard(entry),
        updates_accepted=record.accepted if record else 0,
        updates_duplicate=entry.duplicates,
        updates_rejected=dict(entry.rejected),
        last_staleness=record.last_staleness if record else 0,
        assigned_version=entry.assigned_version,
        status=entry.status,
        compared=entry.compared,
        last_acting_version=0 if entry.heard_before is None else entry.heard_before.acting_version,
        last_finished=entry.heard_before is not None and entry.heard_before.finished,
        held=entry.held,
        contested=learner.fleet.is_contested(entry),
        quarantined_until_unix_seconds=learner.quarantine.until(entry.cluster) or 0.0,
        identity=identity,
        speed_statistics=speeds.statistics,
        speed_observations=speeds.observations,
    )
    if not with_jobs and view.HasField("status"):
        view.status.ClearField("job_timelines")
        view.status.ClearField("load")
        view.status.ClearField("replayed")
    return view


_MAX_CLUSTERS = 100_000
_OVER = frozenset(phase.value for phase in RolloutPhase if phase.over)


Request = TypeVar("Request")
Reply = TypeVar("Reply")


def for_people(
    method: Callable[[AdminService, Request, Order], Awaitable[Reply]],
) -> Callable[[AdminService, Request, Context], Awaitable[Reply]]:
    """Answer a person, by whose order the method is called, as all calls are `answered`."""

    @functools.wraps(method)
    async def call(service: AdminService, request: Request, context: Context) -> Reply:
        actor, now = service.identity.person(context.auth_context()), service.wall_clock()
        order = Order(actor, now, getattr(request, "reason", ""), getattr(request, "dry_run", False))
        check_reason(order.why)
        return await method(service, request, order)

    return answered(call)


class AdminService(fleet_pb2_grpc.AdminServicer):
    """Answers the platform owner and those to whom he gave a role, which was looked at before (`identity.NEEDS`)."""

    def __init__(
        self,
        learner: Learner,
        identity: CallerIdentity,
        registrar: Registrar,
        telemetry: LearnerTelemetry,
        scoring: bool = True,
    ) -> None:
        self.telemetry = telemetry
        self.wall_clock = learner.process.wall_clock
        self._learner = learner
        self._registry, self._ask = learner.registry.registry, learner.registry.call
        self.identity = identity
        self._registrar = registrar
        self._scoring = scoring

    # The fleet and its clusters.

    @for_people
    async def GetFleet(self, request: fleet_pb2.GetFleetRequest, order: Order) -> fleet_pb2.GetFleetReply:
        """All clusters, and the head."""
        return await fleet_message(self._learner, self._registrar)

    @for_people
    async def GetReport(self, request: fleet_pb2.GetReportRequest, order: Order) -> fleet_pb2.GetReportReply:
        """Everything that the report shows."""
        return await self.report()

    async def report(self) -> fleet_pb2.GetReportReply:
        """Everything that the report shows, as it is now; only on the learner's event loop."""
        enrolls = self._registrar.enrolls
        rollouts = [overview_message(entry) for entry in await self._learner.rollouts.latest_overviews()]
        for rollout in rollouts:
            if rollout.phase not in _OVER:
                self._show_refusals(rollout)
        staleness = self._learner.head.ledger.recent_staleness()
        return fleet_pb2.GetReportReply(
            made_unix_seconds=self.wall_clock(),
            fleet=await fleet_message(self._learner, self._registrar, with_jobs=True),
            versions=await self._versions(),
            enrolls=enrolls,
            identities=await self._registrar.clusters() if enrolls else [],
            staleness=[
                fleet_pb2.StalenessCounts(cluster=cluster, updates=counts) for cluster, counts in staleness.items()
            ],
            rollouts=rollouts,
            acts=[
                fleet_pb2.AuditEntry(**dataclasses.asdict(line))
                for log in (
                    await self._ask(self._registrar.store.acts, ACTS, MOST_EVENTS),
                    await self._ask(self._registry.acts, ACTS, MOST_EVENTS),
                )
                for line in log
            ],
        )

    @for_people
    async def EnrollCluster(
        self, request: fleet_pb2.EnrollClusterRequest, order: Order
    ) -> fleet_pb2.EnrollClusterReply:
        """A one-time token for a cluster's name."""
        invitation = await self._registrar.invite(request.cluster, order.actor)
        return fleet_pb2.EnrollClusterReply(
            token=invitation.token,
            expires_unix_seconds=invitation.expires_unix_seconds,
            enroll_port=self._registrar.enroll_port,
            authority=self._registrar.authority_pem,
            voided_tokens=invitation.voided_tokens,
        )

    @for_people
    async def ListClusters(self, request: fleet_pb2.ListClustersRequest, order: Order) -> fleet_pb2.ListClustersReply:
        """Who may call, who might, who may no longer."""
        return fleet_pb2.ListClustersReply(clusters=await self._registrar.clusters())

    @for_people
    async def RevokeCluster(
        self, request: fleet_pb2.RevokeClusterRequest, order: Order
    ) -> fleet_pb2.RevokeClusterReply:
        """Turn a cluster out; its next call is refused."""
        certificates, tokens = await self._registrar.revoke(
            request.cluster, order.actor, order.why, dry_run=order.dry_run
        )
        return fleet_pb2.RevokeClusterReply(certificates=certificates, tokens=tokens)

    @for_people
    async def ForgetCluster(
        self, request: fleet_pb2.ForgetClusterRequest, order: Order
    ) -> fleet_pb2.ForgetClusterReply:
        """List a cluster no longer that was turned out, or was never enrolled and is away."""
        cluster, dry_run = request.cluster, order.dry_run
        fleet, away_seconds = self._learner.fleet, self._learner.rollouts.away_seconds
        entry = fleet.get(cluster)
        is_heard = entry is not None and fleet.seconds_since_heard(entry) <= away_seconds
        registered = await self._registrar.forget(
            cluster, order.actor, order.why, dry_run=dry_run, unheard_seconds=away_seconds if is_heard else None
        )
        if not dry_run:
            self._learner.forget(cluster)
        record = self._learner.head.ledger.clusters.get(cluster)
        accepted = 0 if record is None else record.accepted
        return fleet_pb2.ForgetClusterReply(registered=registered, updates_accepted=accepted)

    @for_people
    async def EnrollOperator(
        self, request: fleet_pb2.EnrollOperatorRequest, order: Order
    ) -> fleet_pb2.EnrollOperatorReply:
        """A certificate for a person, in place of those of that name."""
        grant, replaced = await self._registrar.enroll_person(
            request.name, request.role, request.signing_request, order.actor
        )
        return fleet_pb2.EnrollOperatorReply(
            certificate=grant.pem,
            authority=self._registrar.authority_pem,
            expires_unix_seconds=grant.expires_unix_seconds,
            replaced=replaced,
        )

    @for_people
    async def ListOperators(
        self, request: fleet_pb2.ListOperatorsRequest, order: Order
    ) -> fleet_pb2.ListOperatorsReply:
        """People, their roles, and until when."""
        return fleet_pb2.ListOperatorsReply(operators=await self._registrar.people())

    @for_people
    async def RevokeOperator(
        self, request: fleet_pb2.RevokeOperatorRequest, order: Order
    ) -> fleet_pb2.RevokeOperatorReply:
        """Turn a person out; the next call is refused."""
        certificates = await self._registrar.revoke_person(request.name, order.actor, order.why, dry_run=order.dry_run)
        return fleet_pb2.RevokeOperatorReply(certificates=certificates)

    @for_people
    async def ReleaseCluster(
        self, request: fleet_pb2.ReleaseClusterRequest, order: Order
    ) -> fleet_pb2.ReleaseClusterReply:
        """End a cluster's quarantine."""
        return fleet_pb2.ReleaseClusterReply(released=await self._learner.operator.release(request.cluster, order))

    # Versions, the head, and the audit log.

    @for_people
    async def ListVersions(self, request: fleet_pb2.ListVersionsRequest, order: Order) -> fleet_pb2.ListVersionsReply:
        """All cards, oldest first."""
        return fleet_pb2.ListVersionsReply(versions=await self._versions())

    @for_people
    async def ShowVersion(self, request: fleet_pb2.ShowVersionRequest, order: Order) -> fleet_pb2.ShowVersionReply:
        """One card and its spec."""
        card, spec = await self._ask(self._registry.version, request.version)
        return fleet_pb2.ShowVersionReply(card=version_message(card, scoring=self._scoring), spec_json=spec.to_json())

    @for_people
    async def AssignVersion(
        self, request: fleet_pb2.AssignVersionRequest, order: Order
    ) -> fleet_pb2.AssignVersionReply:
        """Let clusters act on a version from their next heartbeat on."""
        clusters = _whom(request)
        rollouts = self._learner.rollouts
        done = await rollouts.assign(request.version, clusters, order, _seen_versions(request))
        return fleet_pb2.AssignVersionReply(
            assignments=_assignments(done),
            pinned=done.pinned,
            rollout=done.record.state.number if done.pinned and done.record is not None else 0,
            passed_over=sorted(rollouts.gone()) if request.all else [],
        )

    @for_people
    async def RollBack(self, request: fleet_pb2.RollBackRequest, order: Order) -> fleet_pb2.RollBackReply:
        """Let clusters act on the version before from their next heartbeat on."""
        done = await self._learner.rollouts.go_back(
            _whom(request),
            order,
            seen=_seen_versions(request),
            just_looked=request.just_looked,
        )
        passed_over = sorted(self._learner.rollouts.gone()) if request.all else []
        return fleet_pb2.RollBackReply(assignments=_assignments(done), passed_over=passed_over)

    # Rollouts.

    @for_people
    async def StartRollout(self, request: fleet_pb2.StartRolloutRequest, order: Order) -> fleet_pb2.StartRolloutReply:
        """Begin to bring a version to the fleet in stages."""
        taken = await self._learner.rollouts.begin(request.version, request.plan_json, order)
        note = AUTO_ASSIGN_NOTE if self._learner.rollouts.auto_assign else ""
        return fleet_pb2.StartRolloutReply(rollout=taken_message(taken), changes=change_lines(taken), note=note)

    @for_people
    async def GetRollout(self, request: fleet_pb2.GetRolloutRequest, order: Order) -> fleet_pb2.GetRolloutReply:
        """One rollout, with its clusters, verdicts and events."""
        shown = overview_message(await self._learner.rollouts.overview(request.number))
        if shown.phase not in _OVER:
            self._show_heard(shown)
        return fleet_pb2.GetRolloutReply(rollout=shown)

    def _show_heard(self, shown: fleet_pb2.Rollout) -> None:
        """Have a rollout say what each cluster said last that it acts on, as `GetFleet` does.

        What the rollout was told is older where a cluster is away, and is of no use to who asks what acts now.
        """
        for member in shown.members:
            entry = self._learner.fleet.get(member.cluster)
            if entry is not None and entry.status is not None and member.role != VersionRole.ALTERNATING:
                member.acting_version = entry.status.acting_version
        self._show_refusals(shown)

    def _show_refusals(self, shown: fleet_pb2.Rollout) -> None:
        """Have a rollout say which of its clusters refuse a version now: it waits for them."""
        for member in shown.members:
            entry = self._learner.fleet.get(member.cluster)
            if entry is None or entry.status is None or member.away or member.role == VersionRole.PINNED:
                continue
            if entry.status.refused_version in (shown.candidate_version, member.incumbent_version):
                member.refused_version = entry.status.refused_version
                member.refused_reason = entry.status.refused_reason

    @for_people
    async def ListRollouts(self, request: fleet_pb2.ListRolloutsRequest, order: Order) -> fleet_pb2.ListRolloutsReply:
        """All rollouts, oldest first."""
        records = await self._ask(self._learner.rollouts.store.records)
        return fleet_pb2.ListRolloutsReply(rollouts=[record_message(record) for record in records])

    @for_people
    async def ActOnRollout(self, request: fleet_pb2.ActOnRolloutRequest, order: Order) -> fleet_pb2.ActOnRolloutReply:
        """Carry out an operator's word on the latest rollout."""
        if request.cluster:
            checked_name(request.cluster)
        seen = SeenRollout(request.seen.number, request.seen.event_number) if request.HasField("seen") else None
        taken = await self._learner.rollouts.act(request.action, request.cluster, order, seen)
        return fleet_pb2.ActOnRolloutReply(rollout=taken_message(taken), changes=change_lines(taken))

    @for_people
    async def PinVersion(self, request: fleet_pb2.PinVersionRequest, order: Order) -> fleet_pb2.PinVersionReply:
        """Keep a version whatever its age, or no longer."""
        changed = await self._ask(self._registry.remarks.pin, request.version, request.pinned, order)
        return fleet_pb2.PinVersionReply(changed=changed)

    @for_people
    async def NoteVersion(self, request: fleet_pb2.NoteVersionRequest, order: Order) -> fleet_pb2.NoteVersionReply:
        """Have a version's card say something to people."""
        check_reason(request.text, "note")
        changed = await self._ask(self._registry.remarks.note, request.version, request.text.strip(), order)
        return fleet_pb2.NoteVersionReply(changed=changed)

    @for_people
    async def RestoreVersion(
        self, request: fleet_pb2.RestoreVersionRequest, order: Order
    ) -> fleet_pb2.RestoreVersionReply:
        """Put a version's file back that was damaged or lost."""
        restored = await self._learner.operator.restore(request.version, request.file, order)
        return fleet_pb2.RestoreVersionReply(changed=restored)

    @for_people
    async def PublishVersion(
        self, request: fleet_pb2.PublishVersionRequest, order: Order
    ) -> fleet_pb2.PublishVersionReply:
        """Make a policy that was trained elsewhere the next version; nothing acts on it by that."""
        card = await self._learner.operator.publish(request.policy_file, request.note, order)
        return fleet_pb2.PublishVersionReply(card=version_message(card, scoring=self._scoring))

    @for_people
    async def AliasVersion(self, request: fleet_pb2.AliasVersionRequest, order: Order) -> fleet_pb2.AliasVersionReply:
        """Let a word mean a version, or nothing any more."""
        remarks = self._registry.remarks
        if request.version:
            before = await self._ask(remarks.give_alias, request.alias, request.version, request.move, order)
        else:
            before = await self._ask(remarks.take_alias, request.alias, order)
        return fleet_pb2.AliasVersionReply(from_version=before)

    @for_people
    async def ResetHead(self, request: fleet_pb2.ResetHeadRequest, order: Order) -> fleet_pb2.ResetHeadReply:
        """Let the head go on from a version."""
        seen_step = request.seen_step if request.HasField("seen_step") else None
        return await self._learner.operator.reset_head(request.version, order, seen_step)

    @for_people
    async def GetKeys(self, request: fleet_pb2.GetKeysRequest, order: Order) -> fleet_pb2.GetKeysReply:
        """Which keys sign for this fleet."""
        signing = self._learner.operator.signing
        if signing is None:
            return fleet_pb2.GetKeysReply()
        return fleet_pb2.GetKeysReply(
            roots=[root.message() for root in signing.keys.roots], root_key_present=signing.keys.root_key_present
        )

    @for_people
    async def RotateKey(self, request: fleet_pb2.RotateKeyRequest, order: Order) -> fleet_pb2.RotateKeyReply:
        """A new key in a role's place."""
        root = SignedDocument.of(request.root) if request.HasField("root") else None
        unsigned = await self._learner.operator.rotate_key(request.role, root, order, request.seen_root)
        roots = [document.message() for document in self._registrar.roots]
        return fleet_pb2.RotateKeyReply(roots=roots, unsigned_root=unsigned)

    @for_people
    async def ListAudit(self, request: fleet_pb2.ListAuditRequest, order: Order) -> fleet_pb2.ListAuditReply:
        """Who did what, when: identities, versions and the head in one log."""
        since = request.since_unix_seconds
        if not math.isfinite(since):
            raise BadRequest(f"since is {since}; it must be a moment in Unix seconds")
        logs = [await self._ask(log, since) for log in (self._registrar.store.audit, self._registry.audit)]
        # Each log keeps its own order, in which it is chained, also where a clock was set back.
        merged = heapq.merge(*logs, key=lambda line: line.unix_seconds)
        return fleet_pb2.ListAuditReply(entries=[fleet_pb2.AuditEntry(**dataclasses.asdict(line)) for line in merged])

    async def _versions(self) -> list[fleet_pb2.VersionCard]:
        return [version_message(card, scoring=self._scoring) for card in await self._ask(self._registry.versions)]


def _whom(request: fleet_pb2.AssignVersionRequest | fleet_pb2.RollBackRequest) -> list[str] | None:
    """The clusters that a request names; None for all.

    Raises:
        BadRequest: it names none, or some and all; or a name that no cluster can have.
    """
    clusters = list(request.clusters)
    if request.all is bool(clusters) or len(clusters) > _MAX_CLUSTERS:
        raise BadRequest("name the clusters to assign to, or say all; not both, and not neither")
    for name in clusters:
        checked_name(name)
    return None if request.all else clusters


def _seen_versions(request: fleet_pb2.AssignVersionRequest | fleet_pb2.RollBackRequest) -> dict[str, int]:
    """What clusters were to act on when the caller looked.

    Raises:
        BadRequest: more than there can be clusters, or a name that none can have.
    """
    if len(request.seen_versions) > _MAX_CLUSTERS:
        raise BadRequest(f"seen_versions names {len(request.seen_versions)} clusters; no fleet has so many")
    return {checked_name(name): version for name, version in request.seen_versions.items()}


def _assignments(done: Taken) -> list[fleet_pb2.Assignment]:
    return [fleet_pb2.Assignment(**dataclasses.asdict(entry)) for entry in done.assigned]
