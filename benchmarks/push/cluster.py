"""A cluster of a measurement: an identity, a connection of its own to the learner, and updates that it numbers."""

from __future__ import annotations

from pathlib import Path

import grpc

from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import read_identity
from policy_net.exchange.spec import Weights, WeightSpec, weights_from_bytes
from policy_net.exchange.wire import GradientUpdate, push_request

CALL_SECONDS = 120.0
SAMPLES = 256
"""That each update says it was computed from."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


def channel_to(address: str, identity: str | None, *options: tuple[str, int]) -> grpc.aio.Channel:
    """A connection that is nobody else's: over mutual TLS with an identity file, in plain text without."""
    if identity is None:
        return grpc.aio.insecure_channel(address, options=(*_OPTIONS, *options))
    own = read_identity(Path(identity))
    credentials = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    return grpc.aio.secure_channel(address, credentials, options=(*_OPTIONS, *options))


class PushingCluster:
    """A cluster at the learner that a channel leads to."""

    def __init__(self, channel: grpc.aio.Channel, name: str, spec: WeightSpec) -> None:
        self.name = name
        self.fleet = fleet_pb2_grpc.FleetStub(channel)
        self.incarnation = 0
        self.base_step = 0
        self._channel, self._spec = channel, spec
        self._sequence = 0

    async def register(self) -> None:
        """Connect and register."""
        request = fleet_pb2.RegisterRequest(cluster=self.name)
        reply = await self.fleet.Register(request, timeout=CALL_SECONDS, wait_for_ready=True)
        self.incarnation, self.base_step = reply.incarnation, reply.head_step

    async def pull(self, timeout: float = CALL_SECONDS) -> Weights:
        """The head, from which the next updates start."""
        request = fleet_pb2.PullHeadRequest(cluster=self.name, incarnation=self.incarnation)
        reply = await self.fleet.PullHead(request, timeout=timeout)
        self.base_step = reply.step
        return weights_from_bytes(reply.weights, self._spec)

    def next_update(self, gradient: Weights) -> GradientUpdate:
        """An update with the next number."""
        self._sequence += 1
        return GradientUpdate(
            *(self.name, self.incarnation, self._sequence, self.base_step, self._spec.digest, gradient, SAMPLES, 200.0),
            replayed=True,
        )

    async def push(
        self, update: GradientUpdate, timeout: float = CALL_SECONDS, *, want_weights: bool = True
    ) -> fleet_pb2.PushReply:
        """Send an update; the next ones start from the head that comes with the answer."""
        reply: fleet_pb2.PushReply = await self.fleet.Push(
            push_request(update, want_weights=want_weights), timeout=timeout
        )
        self.base_step = reply.head_step
        return reply

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
