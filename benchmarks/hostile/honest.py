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
from typing import Any

import grpc
import numpy as np

from benchmarks.processes import answer_commands
from benchmarks.push.cluster import PushingCluster, channel_to
from benchmarks.push.policies import policy
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.spec import Weights

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


class HonestCluster(PushingCluster):
    """One cluster."""

    def __init__(self, address: str, name: str, identity: str, seed: int) -> None:
        super().__init__(channel_to(address, identity), name, policy().spec)
        self._random = np.random.default_rng(seed)

    async def head(self) -> Weights:
        """The head, however long it takes."""
        while True:
            try:
                return await self.pull(PATIENCE_SECONDS)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(BACKOFF_SECONDS)

    async def teach(self, direction: Weights, phase: Phase) -> None:
        """One update, noted."""
        noise = self._random.standard_normal(direction.size).astype(np.float32)
        noise *= _NOISE / np.linalg.norm(noise)
        update = self.next_update((noise - direction).astype(np.float32))
        phase.sent += 1
        started = time.perf_counter()
        try:
            reply = await self.push(update, PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name.lower()
            await asyncio.sleep(BACKOFF_SECONDS)
        else:
            outcome = reply.reason or "applied"
            phase.applied += reply.outcome == fleet_pb2.PushReply.APPLIED
        phase.outcomes[outcome] = phase.outcomes.get(outcome, 0) + 1
        phase.latencies_ms.append(1000.0 * (time.perf_counter() - started))


async def _run(clusters: list[HonestCluster], direction: Weights, seconds: float) -> Phase:
    phase = Phase()
    before = await clusters[0].head()
    started = time.perf_counter()

    async def go_on(cluster: HonestCluster) -> None:
        while time.perf_counter() < started + seconds:
            begun = time.perf_counter()
            await cluster.teach(direction, phase)
            await asyncio.sleep(max(0.0, begun + PACE_SECONDS - time.perf_counter()))

    await asyncio.gather(*map(go_on, clusters))
    phase.seconds = time.perf_counter() - started
    after = await clusters[0].head()
    phase.learned = float((after - before) @ direction)
    return phase


async def _serve(address: str, identities: dict[str, str], seed: int) -> None:
    clusters = [
        HonestCluster(address, name, file, seed + number) for number, (name, file) in enumerate(identities.items())
    ]
    generator = np.random.default_rng(seed)
    direction = generator.choice((-1.0, 1.0), policy().spec.parameter_count).astype(np.float32)
    direction /= np.linalg.norm(direction)
    for cluster in clusters:
        await cluster.register()

    async def answer(seconds: float) -> str:
        return json.dumps(asdict(await _run(clusters, direction, seconds)))

    await answer_commands(answer)
    for cluster in clusters:
        await cluster.close()


def main(arguments: list[str]) -> None:
    """Entry point: HOST:PORT, a JSON object of identity files by cluster, a seed."""
    address, identities, seed = arguments
    named: dict[str, Any] = json.loads(identities)
    asyncio.run(_serve(address, named, int(seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
