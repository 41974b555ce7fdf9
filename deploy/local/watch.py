"""The fleet as the learner sees it while it runs, in plain values; asked over the same service that policyctl uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from deploy.local.processes import DemoFailed
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import read_identity

CALL_SECONDS = 30.0
"""Deadline of one question; the learner answers in milliseconds unless the machine is overloaded."""

_NOT_FOR_US = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """One cluster at one moment; seconds are simulated."""

    name: str
    time_seconds: float
    decisions: int
    running: int
    waiting: int
    done: int
    jobs: int
    avg_jct_seconds: float
    drf_jct_seconds: float
    acting_version: int
    learning_step: int
    staleness: int
    interventions: int
    finished: bool


@dataclass(frozen=True, slots=True)
class FleetNow:
    """The learner and its clusters at one moment."""

    head_step: int
    updates_accepted: int
    updates_rejected: int
    staleness_p50: float
    latest_version: int
    clusters: tuple[ClusterNow, ...]


class LearnerWatch:
    """Asks the learner; `None` while it does not answer, so that a restarted learner only pauses the display."""

    def __init__(self, address: str, identity_file: Path | None = None) -> None:
        """Open a channel, in plain text without an identity file.

        Raises:
            IdentityFileError: the identity file cannot be used.
        """
        # A version's weights are half a megabyte; the default limit of 4 MB would do, an unlimited one never surprises.
        options = [("grpc.max_receive_message_length", -1)]
        if identity_file is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            own = read_identity(identity_file)
            credentials = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._admin = fleet_pb2_grpc.AdminStub(self._channel)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def now(self) -> FleetNow | None:
        """The fleet as it is, or None if the learner does not answer.

        Raises:
            DemoFailed: it answers, but not to us.
        """
        try:
            reply = self._admin.GetFleet(fleet_pb2.GetFleetRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() in _NOT_FOR_US:
                raise DemoFailed(f"the learner does not tell us of its fleet: {error.details()}") from error
            return None
        return FleetNow(
            head_step=reply.head_step,
            updates_accepted=reply.updates_accepted,
            updates_rejected=reply.updates_rejected,
            staleness_p50=reply.staleness_p50,
            latest_version=reply.latest_version,
            clusters=tuple(_cluster(view) for view in sorted(reply.clusters, key=lambda view: view.cluster)),
        )

    def report(self) -> fleet_pb2.GetReportReply:
        """Everything that the report shows.

        Raises:
            DemoFailed: the learner does not answer.
        """
        try:
            reply: fleet_pb2.GetReportReply = self._admin.GetReport(fleet_pb2.GetReportRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise DemoFailed(f"the learner does not report ({error})") from error
        return reply

    def versions(self) -> list[fleet_pb2.VersionCard]:
        """The cards of all published versions, oldest first.

        Raises:
            DemoFailed: the learner does not answer.
        """
        try:
            reply = self._admin.ListVersions(fleet_pb2.ListVersionsRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise DemoFailed(f"the learner does not list its versions ({error})") from error
        return sorted(reply.versions, key=lambda card: card.version)

    def policy_file(self, version: int) -> bytes:
        """The bytes of a version's policy file.

        Raises:
            DemoFailed: the learner does not hand it out.
        """
        request = fleet_pb2.FetchPolicyRequest(version=version)
        try:
            return bytes(self._fleet.FetchPolicy(request, timeout=CALL_SECONDS).policy_file)
        except grpc.RpcError as error:
            raise DemoFailed(f"the learner does not hand out version {version} ({error})") from error


def _cluster(view: fleet_pb2.ClusterView) -> ClusterNow:
    status = view.status
    return ClusterNow(
        name=view.cluster,
        time_seconds=status.time_seconds,
        decisions=status.decisions,
        running=status.jobs_running,
        waiting=status.jobs_waiting,
        done=status.jobs_done,
        jobs=status.jobs_total,
        avg_jct_seconds=status.avg_jct_seconds,
        drf_jct_seconds=status.baseline_jct_seconds,
        acting_version=status.acting_version,
        learning_step=status.learning_step,
        staleness=view.last_staleness,
        interventions=sum(status.guard_interventions.values()),
        finished=status.finished,
    )
