"""Honest clusters, in one process: each pushes at an agent's pace and notes what became of every update.

What they learn is known: every gradient points away from one and the same direction, beside noise, so how far the head
has moved along it is what the fleet has learned. Reads a number of seconds a line from stdin, and answers each with one
line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.push.policies import policy
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import read_identity
from policy_net.exchange.spec import Weights, weights_from_bytes
from policy_net.exchange.wire import GradientUpdate, push_request

PACE_SECONDS = 0.05
"""Between the pushes of a cluster."""
PATIENCE_SECONDS = 10.0
"""An agent's own: later answers count as lost."""
BACKOFF_SECONDS = 0.2
_NOISE = 1.0
"""Norm of the noise in a gradient, in that of its direction."""


@dataclass(slots=True)
class Phase:
    """What came of the updates of some seconds.

    Attributes:
        sent: updates, those included that were refused or never answered.
        learned: how far the head moved along the direction that all gradients have.
    """

    seconds: float = 0.0
    sent: int = 0
    applied: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    learned: float = 0.0


class Cluster:
    """One cluster, its connection and its head."""

    def __init__(self, address: str, name: str, identity: Path, seed: int) -> None:
        own = read_identity(identity)
        credentials = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.secure_channel(address, credentials, options)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)
        self._name = name
        self._spec = policy().spec
        self._random = np.random.default_rng(seed)
        self._sequence = 0
        self._incarnation = 0
        self._base_step = 0

    async def begin(self) -> None:
        """Register."""
        registered = await self._fleet.Register(fleet_pb2.RegisterRequest(), timeout=120.0)
        self._incarnation, self._base_step = registered.incarnation, registered.head_step

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def head(self) -> Weights:
        """The head, however long it takes."""
        request = fleet_pb2.PullHeadRequest(incarnation=self._incarnation)
        while True:
            try:
                reply = await self._fleet.PullHead(request, timeout=PATIENCE_SECONDS)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(BACKOFF_SECONDS)
            else:
                self._base_step = reply.step
                return weights_from_bytes(reply.weights, self._spec)

    async def push(self, direction: Weights, phase: Phase) -> None:
        """One update, noted."""
        self._sequence += 1
        noise = self._random.standard_normal(direction.size).astype(np.float32)
        noise *= _NOISE / np.linalg.norm(noise)
        gradient = (noise - direction).astype(np.float32)
        update = GradientUpdate(
            *(self._name, self._incarnation, self._sequence, self._base_step, self._spec.digest, gradient, 256, 200.0),
            replayed=True,
        )
        phase.sent += 1
        started = time.perf_counter()
        try:
            reply = await self._fleet.Push(push_request(update, want_weights=True), timeout=PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name.lower()
            await asyncio.sleep(BACKOFF_SECONDS)
        else:
            outcome = reply.reason or "applied"
            self._base_step = reply.head_step
            phase.applied += reply.outcome == fleet_pb2.PushReply.APPLIED
        phase.outcomes[outcome] = phase.outcomes.get(outcome, 0) + 1
        phase.latencies_ms.append(1000.0 * (time.perf_counter() - started))


async def _run(clusters: list[Cluster], direction: Weights, seconds: float) -> Phase:
    phase = Phase()
    before = await clusters[0].head()
    started = time.perf_counter()

    async def go_on(cluster: Cluster) -> None:
        while time.perf_counter() < started + seconds:
            begun = time.perf_counter()
            await cluster.push(direction, phase)
            await asyncio.sleep(max(0.0, begun + PACE_SECONDS - time.perf_counter()))

    await asyncio.gather(*map(go_on, clusters))
    phase.seconds = time.perf_counter() - started
    after = await clusters[0].head()
    phase.learned = float((after - before) @ direction)
    return phase


async def _serve(address: str, identities: dict[str, str], seed: int) -> None:
    clusters = [
        Cluster(address, name, Path(file), seed + number) for number, (name, file) in enumerate(identities.items())
    ]
    generator = np.random.default_rng(seed)
    direction = generator.choice((-1.0, 1.0), policy().spec.parameter_count).astype(np.float32)
    direction /= np.linalg.norm(direction)
    for cluster in clusters:
        await cluster.begin()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await _run(clusters, direction, float(line)))), flush=True)
    for cluster in clusters:
        await cluster.close()


def main(arguments: list[str]) -> None:
    """Entry point: HOST:PORT, a JSON object of identity files by cluster, a seed."""
    address, identities, seed = arguments
    named: dict[str, Any] = json.loads(identities)
    asyncio.run(_serve(address, named, int(seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
