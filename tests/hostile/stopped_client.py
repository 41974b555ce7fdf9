"""A cluster that asks for the head many times and stops before it has read the answers.

Its arguments: HOST:PORT, an identity file, a cluster, its incarnation, how many calls, over how many connections.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.identity_file import read_identity


async def main(address: str, identity: Path, cluster: str, incarnation: int, calls: int, connections: int) -> None:
    own = read_identity(identity)
    credentials = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.aio.secure_channel(address, credentials, options) for _ in range(connections)]
    request = pb.PullHeadRequest(cluster=cluster, incarnation=incarnation)
    for channel in channels:
        await channel.channel_ready()
    asked = [rpc.FleetStub(channels[number % connections]).PullHead(request) for number in range(calls)]
    await asyncio.wait([asyncio.ensure_future(_ended(call)) for call in asked], return_when=asyncio.FIRST_COMPLETED)
    os.kill(os.getpid(), signal.SIGSTOP)


async def _ended(call: grpc.aio.UnaryUnaryCall) -> None:
    await call.code()


if __name__ == "__main__":
    place, file, name, life, many, over = sys.argv[1:]
    asyncio.run(main(place, Path(file), name, int(life), int(many), int(over)))
