"""Asks a learner, with a deadline; gRPC's errors become `Unreachable`, or the learner's own line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from global_learner.errors import BadConfig, IdentityRefused, LearnerError, UnknownPolicyVersion, Unreachable
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc

_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_REFUSALS: dict[grpc.StatusCode, type[LearnerError]] = {
    grpc.StatusCode.NOT_FOUND: UnknownPolicyVersion,
    grpc.StatusCode.PERMISSION_DENIED: IdentityRefused,
}

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a connection; no `ca` means plain text."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class AdminClient:
    """The learner's `Admin` service at an address."""

    def __init__(self, address: str, tls: TlsFiles, timeout_seconds: float) -> None:
        """Open a channel; nothing is sent yet.

        Raises:
            BadConfig: a TLS file cannot be read.
        """
        self._address = address
        self._timeout_seconds = timeout_seconds
        options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        if tls.ca is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            credentials = grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), _read(tls.certificate))
            self._channel = grpc.secure_channel(address, credentials, options)
        self._admin = fleet_pb2_grpc.AdminStub(self._channel)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def versions(self) -> list[fleet_pb2.VersionCard]:
        """All cards, oldest first."""
        return list(self._call(self._admin.ListVersions, fleet_pb2.ListVersionsRequest()).versions)

    def version(self, version: int) -> fleet_pb2.ShowVersionReply:
        """One version's card and spec."""
        reply: fleet_pb2.ShowVersionReply = self._call(
            self._admin.ShowVersion, fleet_pb2.ShowVersionRequest(version=version)
        )
        return reply

    def fleet(self) -> fleet_pb2.GetFleetReply:
        """All clusters, and the head."""
        reply: fleet_pb2.GetFleetReply = self._call(self._admin.GetFleet, fleet_pb2.GetFleetRequest())
        return reply

    def release(self, cluster: str) -> bool:
        """End a cluster's quarantine; False if it was in none."""
        request = fleet_pb2.ReleaseClusterRequest(cluster=cluster)
        return bool(self._call(self._admin.ReleaseCluster, request).released)

    def _call(self, method: Callable[..., Reply], request: object) -> Reply:
        try:
            return method(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code in _UNREACHABLE:
                raise Unreachable(
                    f"no learner answers at {self._address} within {self._timeout_seconds:g} s ({details}); "
                    "start it, or name another one with --learner HOST:PORT"
                ) from error
            raise _REFUSALS.get(code, LearnerError)(f"{details}") from error


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read ({error.strerror})") from error
