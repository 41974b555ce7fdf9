"""The part of the service `Admin` of fleet.proto that is about versions, the head and the audit log."""

# ruff: noqa: N802  # methods and their parameters are named by fleet.proto
from __future__ import annotations

import math

from global_learner.enrollment.registrar import Registrar
from global_learner.errors import BadRequest
from global_learner.identity import Identity, checked_name
from global_learner.service.calls import Context, answered
from global_learner.service.fleet_service import FleetLearner
from global_learner.telemetry import Telemetry
from global_learner.version_messages import version_message
from policy_net.exchange.generated import fleet_pb2

_MAX_CLUSTERS = 100_000


class VersionAdmin:
    """Translates; `Operator` decides.

    Args:
        scoring: whether this learner scores its versions.
    """

    def __init__(
        self,
        learner: FleetLearner,
        identity: Identity,
        registrar: Registrar,
        telemetry: Telemetry,
        scoring: bool = True,
    ) -> None:
        self.telemetry = telemetry
        self._learner = learner
        self._identity = identity
        self._registrar = registrar
        self._scoring = scoring

    @answered
    async def ListVersions(
        self, request: fleet_pb2.ListVersionsRequest, context: Context
    ) -> fleet_pb2.ListVersionsReply:
        """All cards, oldest first."""
        del request
        self._identity.administrator(context.auth_context())
        return fleet_pb2.ListVersionsReply(versions=await self._versions())

    @answered
    async def ShowVersion(self, request: fleet_pb2.ShowVersionRequest, context: Context) -> fleet_pb2.ShowVersionReply:
        """One card and its spec."""
        self._identity.administrator(context.auth_context())
        card, spec = await self._learner.operator.version(request.version)
        return fleet_pb2.ShowVersionReply(card=version_message(card, scoring=self._scoring), spec_json=spec.to_json())

    async def _versions(self) -> list[fleet_pb2.VersionCard]:
        return [version_message(card, scoring=self._scoring) for card in await self._learner.operator.versions()]

    @answered
    async def AssignVersion(
        self, request: fleet_pb2.AssignVersionRequest, context: Context
    ) -> fleet_pb2.AssignVersionReply:
        """Let clusters act on a version from their next heartbeat on."""
        actor = self._identity.administrator(context.auth_context())
        clusters = list(request.clusters)
        if request.all is bool(clusters) or len(clusters) > _MAX_CLUSTERS:
            raise BadRequest("name the clusters to assign to, or say all; not both, and not neither")
        for name in clusters:
            checked_name(name)
        done = await self._learner.operator.assign(request.version, None if request.all else clusters, actor)
        return fleet_pb2.AssignVersionReply(
            assignments=[
                fleet_pb2.Assignment(
                    cluster=entry.cluster,
                    from_version=entry.from_version,
                    to_version=entry.to_version,
                    held=entry.held,
                )
                for entry in done
            ]
        )

    @answered
    async def PinVersion(self, request: fleet_pb2.PinVersionRequest, context: Context) -> fleet_pb2.PinVersionReply:
        """Keep a version whatever its age, or no longer."""
        actor = self._identity.administrator(context.auth_context())
        changed = await self._learner.operator.pin(request.version, request.pinned, actor)
        return fleet_pb2.PinVersionReply(changed=changed)

    @answered
    async def ResetHead(self, request: fleet_pb2.ResetHeadRequest, context: Context) -> fleet_pb2.ResetHeadReply:
        """Let the head go on from a version."""
        actor = self._identity.administrator(context.auth_context())
        done = await self._learner.operator.reset_head(request.version, actor)
        return fleet_pb2.ResetHeadReply(
            from_step=done.from_step, head_step=done.head_step, moments_kept=done.moments_kept, changed=done.changed
        )

    @answered
    async def ListAudit(self, request: fleet_pb2.ListAuditRequest, context: Context) -> fleet_pb2.ListAuditReply:
        """Who did what, when: identities, versions and the head in one log."""
        self._identity.administrator(context.auth_context())
        since = request.since_unix_seconds
        if not math.isfinite(since):
            raise BadRequest(f"since is {since}; it must be a moment in Unix seconds")
        entries = [*await self._registrar.audit(since), *await self._learner.operator.audit(since)]
        entries.sort(key=lambda entry: entry.unix_seconds)
        return fleet_pb2.ListAuditReply(
            entries=[
                fleet_pb2.AuditEntry(
                    unix_seconds=entry.unix_seconds,
                    actor=entry.actor,
                    action=entry.action,
                    subject=entry.subject,
                    detail=entry.detail,
                )
                for entry in entries
            ]
        )
