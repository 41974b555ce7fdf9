"""The clusters' side, in one process: each cluster has a connection of its own and pushes as soon as it is answered.

One process for all, since a process each would spend the machine on sixteen Python interpreters; a cluster still does
what an agent does for a push: it builds the message, sends it, and reads the newest head out of the answer. Reads one
command a line from stdin and answers each with one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from benchmarks.processes import answer_commands, cpu_seconds
from benchmarks.push.cluster import CALL_SECONDS, PushingCluster, channel_to
from benchmarks.push.policies import gradient
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.spec import PolicySpec, weights_from_bytes
from policy_net.exchange.wire import GradientUpdate, push_request

_POLL_SECONDS = 0.01
TOO_STALE = "too-stale"
"""A cluster that was silent while others pushed is told so once."""
ECHO = "/fedl2.benchmark.Echo/Push"

Push = Callable[[], Awaitable[bool]]
"""Makes one push; False if it was too stale, and goes on from the head that came with the answer."""


@dataclass(frozen=True, slots=True)
class Load:
    """A command.

    Attributes:
        address: HOST:PORT.
        identities: one identity file a cluster, or none for plain text.
        clusters: the names of those that push.
        server_pid: whose processor time is measured too.
        echo: the server answers with as many bytes, and does nothing else.
        messages: clusters of an echo do for a call what they do for a push: they build the message and read the answer.
            Otherwise they send the same bytes again and again.
    """

    address: str
    identities: dict[str, str]
    clusters: list[str]
    server_pid: int
    seconds: float
    warm_seconds: float
    echo: bool = False
    messages: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """What a command measured; `cpu` figures are of all updates in the measured time."""

    updates: int
    seconds: float
    latencies_ms: list[float]
    server_cpu_seconds: float
    load_cpu_seconds: float


class Clusters:
    """Opens each cluster's connection once and keeps it."""

    def __init__(self, spec: PolicySpec) -> None:
        self._spec = spec
        self._pushes: dict[tuple[str, str, bool], Push] = {}
        self._channels: list[grpc.aio.Channel] = []

    async def push_of(self, load: Load, cluster: str) -> Push:
        """What the cluster does again and again."""
        key = (load.address, cluster, load.messages)
        if key not in self._pushes:
            channel = channel_to(load.address, load.identities.get(cluster))
            self._channels.append(channel)
            if not load.echo:
                opened = await self._fleet(channel, cluster)
            elif load.messages:
                opened = self._message_echo(channel, cluster, len(self._pushes))
            else:
                opened = self._echo(channel, len(self._pushes))
            self._pushes[key] = opened
        return self._pushes[key]

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()

    async def _fleet(self, channel: grpc.aio.Channel, cluster: str) -> Push:
        member = PushingCluster(channel, cluster, self._spec)
        await member.register()
        slope = gradient(self._spec, member.incarnation)

        async def push() -> bool:
            update = member.next_update(slope)
            reply = await member.push(update)
            if reply.outcome != fleet_pb2.PushReply.APPLIED and reply.reason != TOO_STALE:
                raise RuntimeError(f"cluster {cluster}: update {update.sequence} was not applied: {reply.reason}")
            # The answer holds the newest head in any case: pulling it would bring the same.
            weights_from_bytes(reply.weights, self._spec)
            return bool(reply.outcome == fleet_pb2.PushReply.APPLIED)

        return push

    def _echo(self, channel: grpc.aio.Channel, seed: int) -> Push:
        call: Callable[..., Awaitable[bytes]] = channel.unary_unary(ECHO)
        data = gradient(self._spec, seed).tobytes()

        async def push() -> bool:
            answer = await call(data, timeout=CALL_SECONDS)
            if len(answer) != len(data):
                raise RuntimeError(f"the echo has {len(answer)} bytes, {len(data)} were sent")
            return True

        return push

    def _message_echo(self, channel: grpc.aio.Channel, cluster: str, seed: int) -> Push:
        call: Callable[..., Awaitable[bytes]] = channel.unary_unary(ECHO)
        slope = gradient(self._spec, seed)
        sequence = 0

        async def push() -> bool:
            nonlocal sequence
            sequence += 1
            update = GradientUpdate(cluster, 1, sequence, sequence, self._spec.digest, slope, 256, 200.0)
            sent = push_request(update, want_weights=True).SerializeToString()
            answer = fleet_pb2.PushRequest.FromString(await call(sent, timeout=CALL_SECONDS))
            if answer.sequence != sequence:
                raise RuntimeError(f"the echo of message {sequence} is number {answer.sequence}")
            weights_from_bytes(answer.gradient, self._spec)
            return True

        return push


async def run(clusters: Clusters, load: Load) -> Figures:
    """Let the clusters push for a while; only answers within the measured time count, which is as long as it takes to
    one answer at least."""
    pushes = [await clusters.push_of(load, name) for name in load.clusters]
    latencies: list[float] = []
    begin = time.perf_counter() + load.warm_seconds
    end = begin + load.seconds

    over = asyncio.Event()

    async def go_on(push: Push) -> None:
        started = time.perf_counter()
        while not over.is_set():
            applied = await push()
            answered = time.perf_counter()
            if applied and begin <= answered and not over.is_set():
                latencies.append(answered - started)
            started = answered

    def reading() -> tuple[float, float, float]:
        return cpu_seconds(load.server_pid), cpu_seconds(os.getpid()), time.perf_counter()

    async def measured() -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        await asyncio.sleep(max(0.0, begin - time.perf_counter()))
        before = reading()
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        while not latencies:
            await asyncio.sleep(_POLL_SECONDS)
        over.set()
        return before, reading()

    measuring = asyncio.ensure_future(measured())
    await asyncio.gather(measuring, *(go_on(push) for push in pushes))
    before, after = measuring.result()
    return Figures(
        len(latencies),
        after[2] - before[2],
        [1000.0 * seconds for seconds in latencies],
        after[0] - before[0],
        after[1] - before[1],
    )


async def _serve_commands(spec: PolicySpec) -> None:
    clusters = Clusters(spec)

    async def answer(command: dict[str, Any]) -> str:
        return json.dumps(asdict(await run(clusters, Load(**command))))

    try:
        await answer_commands(answer)
    finally:
        await clusters.close()


if __name__ == "__main__":
    asyncio.run(_serve_commands(PolicySpec.from_json(sys.argv[1])))
