"""The learner above over gRPC: its answers checked, nothing retried here; the uplink knows what still matters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from foundation.text import plain_line
from global_learner.aggregation.gathered import Parcel
from global_learner.errors import ParentRefused
from global_learner.upstream.connection import ConnectionAbove
from global_learner.upstream.messages import AnswerAbove, HeadAbove, RegistrationAbove, VersionAbove, WishAbove
from policy_net.errors import PolicyNetError
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import SignedDocument
from policy_net.exchange.spec import WeightSpec, weights_from_bytes
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import GradientUpdate, push_request, type_messages

_OUTCOMES = {
    fleet_pb2.PushReply.APPLIED: "applied",
    fleet_pb2.PushReply.DUPLICATE: "duplicate",
    fleet_pb2.PushReply.REJECTED: "rejected",
}
_LONGEST_REASON = 64
_MOST_FLEETS, _LONGEST_FLEET = 64, 128


class ParentClient:
    """Calls of fleet.proto under one name; every call raises `ParentUnreachable` or `ParentRefused`."""

    def __init__(self, connection: ConnectionAbove, name: str, spec: WeightSpec, *, only_replays: bool = False) -> None:
        """Args: `only_replays` says that nothing else than updates from replays is gathered here."""
        self._only_replays = only_replays
        self._connection = connection
        self._name = name
        self._spec = spec

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def register(self) -> RegistrationAbove:
        """Say that this region is there."""
        request = fleet_pb2.RegisterRequest(cluster=self._name, spec_digest=self._spec.digest)
        reply = await self._connection.call("Register", request)
        if reply.spec_digest != self._spec.digest:
            raise ParentRefused(
                f"the learner above has policies of spec {plain_line(reply.spec_digest[:12])!r}, and this region's is "
                f"{self._spec.digest[:12]}: begin it with a policy of the learner above"
            )
        return RegistrationAbove(reply.incarnation, reply.spec_digest, _fleets(reply.fleets), reply.rounds)

    async def pull(self, incarnation: int) -> HeadAbove:
        """The newest head."""
        request = fleet_pb2.PullHeadRequest(cluster=self._name, incarnation=incarnation)
        reply = await self._connection.call("PullHead", request)
        with _checking("PullHead"):
            return self._head(reply.step, reply.weights)

    async def push(self, parcel: Parcel) -> AnswerAbove:
        """Offer a push; offering the same one again is safe."""
        update = GradientUpdate(
            self._name,
            parcel.incarnation,
            parcel.sequence,
            parcel.base_step,
            self._spec.digest,
            parcel.gradient,
            parcel.samples,
            parcel.effective_samples,
            {"updates": float(parcel.updates)},
            self._only_replays,
        )
        reply = await self._connection.call("Push", push_request(update, want_weights=True))
        with _checking("Push"):
            if reply.outcome not in _OUTCOMES:
                raise ParentRefused(f"outcome {reply.outcome} is not known here")
            head = self._head(reply.head_step, reply.weights)
            reason = plain_line(reply.reason, _LONGEST_REASON)
            return AnswerAbove(_OUTCOMES[reply.outcome], reason, reply.staleness, head)

    async def heartbeat(self, incarnation: int, status: fleet_pb2.ClusterStatus) -> WishAbove:
        """Say how the region is."""
        request = fleet_pb2.HeartbeatRequest(cluster=self._name, incarnation=incarnation, status=status)
        reply = await self._connection.call("Heartbeat", request)
        return WishAbove(reply.assigned_version, reply.head_step, reply.reregister, _fleets(reply.fleets))

    async def share_beliefs(
        self, incarnation: int, revision: int, statistics: Sequence[SpeedStatistic]
    ) -> tuple[str, ...]:
        """Tell speeds, in place of those told before; types for which the vocabulary above has no room."""
        request = fleet_pb2.ShareBeliefsRequest(
            cluster=self._name, incarnation=incarnation, revision=revision, types=type_messages(statistics)
        )
        return tuple((await self._connection.call("ShareBeliefs", request)).left_out)

    async def fetch(self, version: int) -> VersionAbove:
        """A published version's file."""
        request = fleet_pb2.FetchPolicyRequest(cluster=self._name, version=version)
        reply = await self._connection.call("FetchPolicy", request)
        if reply.version != version:
            raise ParentRefused(f"the learner above sent v{reply.version} where v{version} was asked for")
        return VersionAbove(
            reply.version,
            reply.policy_file,
            reply.digest,
            SignedDocument.of(reply.signed) if reply.HasField("signed") else None,
            SignedDocument.of(reply.timestamp) if reply.HasField("timestamp") else None,
            tuple(map(SignedDocument.of, reply.roots)),
        )

    def _head(self, step: int, data: bytes) -> HeadAbove:
        weights = weights_from_bytes(data, self._spec)
        if not np.isfinite(weights).all():
            raise ParentRefused(f"the head of step {step} holds NaN or infinity")
        return HeadAbove(step, weights)


@contextlib.contextmanager
def _checking(name: str) -> Iterator[None]:
    try:
        yield
    except (PolicyNetError, ParentRefused) as error:
        raise ParentRefused(
            f"{name}: the answer of the learner above cannot be used: {plain_line(str(error))}"
        ) from error


def _fleets(names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(names)
    if len(found) > _MOST_FLEETS or any(len(name) > _LONGEST_FLEET for name in found):
        raise ParentRefused(f"the learner above names {len(found)} fleets above it; at most {_MOST_FLEETS} are taken")
    return found
