"""A cluster's standing as it goes over the wire."""

from __future__ import annotations

from global_learner.enrollment.types import ClusterIdentity
from policy_net.exchange.generated import fleet_pb2


def identity_message(entry: ClusterIdentity) -> fleet_pb2.ClusterIdentity:
    """The standing's message, field by field."""
    return fleet_pb2.ClusterIdentity(
        cluster=entry.cluster,
        state=entry.state.value,
        issued_unix_seconds=entry.issued_unix_seconds,
        expires_unix_seconds=entry.expires_unix_seconds,
        fingerprint=entry.fingerprint,
        revoked_unix_seconds=entry.revoked_unix_seconds,
    )
