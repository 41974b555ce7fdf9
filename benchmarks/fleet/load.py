"""A share of the clusters, in one process: each has a connection, an identity and a pace of its own.

A cluster does what an agent does with the learner: it sends heartbeats, and once a period it pulls the head, computes
(here nothing), pushes, and takes the head that comes with the answer. An update that is not answered is sent again
under the same number. Reads one command a line from stdin and answers each with one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import grpc

from benchmarks.processes import answer_commands
from benchmarks.push.cluster import CALL_SECONDS, PushingCluster, channel_to
from benchmarks.push.policies import gradient
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.spec import PolicySpec, Weights, weights_from_bytes
from policy_net.exchange.wire import GradientUpdate

_AGAIN_SECONDS = 0.5
_GRADIENTS = 8
"""A process has so many different ones; values do not matter for the time."""
_LATE_POLL_SECONDS = 0.05
_OPENED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Opened:
    """First command: connect and register these clusters, by their identity files."""

    address: str
    identities: dict[str, str]


@dataclass(frozen=True, slots=True)
class Pace:
    """Second command: how often the clusters do what, and for how long.

    Attributes:
        period_seconds: from one update of a cluster to its next.
        heartbeat_seconds: the same of heartbeats; 0 for none.
        seed: of the moments at which clusters begin.
    """

    period_seconds: float
    heartbeat_seconds: float
    seconds: float
    seed: int


@dataclass(slots=True)
class Done:
    """The second answer.

    Attributes:
        acknowledged: by cluster: its incarnation, and the numbers of its updates that the learner said it has.
        push_ms: from the first attempt until the answer, of these.
        late_ms: how much later than asked for this process was woken: the machine's share of all times.
        refused: updates that were not applied, by the learner's word.
        failures: calls without an answer, by status; they were made again.
    """

    acknowledged: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    push_ms: list[float] = field(default_factory=list)
    pull_ms: list[float] = field(default_factory=list)
    heartbeat_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> str:
        """As it is answered; `asdict` makes counts of pairs out of a counter that is not empty."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)})

    def add(self, answer: dict[str, Any]) -> None:
        """Take what another process met, from its answer's JSON."""
        self.acknowledged.update(
            {name: (reported[0], reported[1]) for name, reported in answer["acknowledged"].items()}
        )
        for name in ("push_ms", "pull_ms", "heartbeat_ms", "late_ms"):
            getattr(self, name).extend(answer[name])
        self.refused.update(answer["refused"])
        self.failures.update(answer["failures"])


class PacedCluster(PushingCluster):
    """One cluster; `learn` and `beat` run side by side."""

    def __init__(self, name: str, address: str, identity: str, spec: PolicySpec, slope: Weights) -> None:
        super().__init__(channel_to(address, identity, ("grpc.enable_retries", 0)), name, spec)
        self._slope = slope

    async def learn(self, pace: Pace, done: Done, begin: float) -> None:
        """Push once a period, from a moment of the first one on; what was begun is answered when this returns."""
        acknowledged: list[int] = []
        done.acknowledged[self.name] = (self.incarnation, acknowledged)
        moment = begin + random.Random(f"{pace.seed} {self.name}").uniform(0.0, pace.period_seconds)
        while moment < begin + pace.seconds:
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            await self._pull_at_last(done)
            update = self.next_update(self._slope)
            if await self._push_at_last(update, done):
                acknowledged.append(update.sequence)
            moment += pace.period_seconds

    async def beat(self, pace: Pace, done: Done, begin: float) -> None:
        """Heartbeats, until the time is over."""
        moment = begin + random.Random(f"{pace.seed} {self.name}").uniform(0.0, pace.heartbeat_seconds)
        status = fleet_pb2.ClusterStatus(time_seconds=1.0, decisions=1, jobs_running=1)
        request = fleet_pb2.HeartbeatRequest(cluster=self.name, incarnation=self.incarnation, status=status)
        while moment < begin + pace.seconds:
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            started = time.perf_counter()
            try:
                await self.fleet.Heartbeat(request, timeout=CALL_SECONDS)
                done.heartbeat_ms.append(_ms_since(started))
            except grpc.aio.AioRpcError as error:
                done.failures[error.code().name] += 1
            moment = max(moment + pace.heartbeat_seconds, time.perf_counter())

    async def _pull_at_last(self, done: Done) -> None:
        while True:
            started = time.perf_counter()
            try:
                await self.pull()
            except grpc.aio.AioRpcError as error:
                done.failures[error.code().name] += 1
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                done.pull_ms.append(_ms_since(started))
                return

    async def _push_at_last(self, update: GradientUpdate, done: Done) -> bool:
        started = time.perf_counter()
        while True:
            try:
                reply = await self.push(update)
            except grpc.aio.AioRpcError as error:
                done.failures[error.code().name] += 1
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            weights_from_bytes(reply.weights, self._spec)
            if reply.outcome == fleet_pb2.PushReply.REJECTED:
                done.refused[reply.reason] += 1
                return False
            done.push_ms.append(_ms_since(started))
            return True


def _ms_since(started: float) -> float:
    return round(1000.0 * (time.perf_counter() - started), 2)


async def _watch_lateness(done: Done) -> None:
    while True:
        asked = time.perf_counter() + _LATE_POLL_SECONDS
        await asyncio.sleep(_LATE_POLL_SECONDS)
        done.late_ms.append(round(1000.0 * (time.perf_counter() - asked), 2))


async def _open(spec: PolicySpec, command: Opened) -> list[PacedCluster]:
    slopes = [gradient(spec, seed) for seed in range(_GRADIENTS)]
    clusters = [
        PacedCluster(name, command.address, path, spec, slopes[number % _GRADIENTS])
        for number, (name, path) in enumerate(command.identities.items())
    ]
    opening = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def register(cluster: PacedCluster) -> None:
        async with opening:
            await cluster.register()

    await asyncio.gather(*(register(cluster) for cluster in clusters))
    return clusters


async def run(clusters: list[PacedCluster], pace: Pace) -> Done:
    """All clusters at their pace; every update that was begun has its answer when this returns."""
    done = Done()
    begin = time.perf_counter()
    watching = asyncio.ensure_future(_watch_lateness(done))
    work = [cluster.learn(pace, done, begin) for cluster in clusters]
    if pace.heartbeat_seconds:
        work += [cluster.beat(pace, done, begin) for cluster in clusters]
    try:
        await asyncio.gather(*work)
    finally:
        watching.cancel()
    return done


async def _serve_commands(spec: PolicySpec) -> None:
    clusters: list[PacedCluster] = []

    async def answer(command: dict[str, Any]) -> str:
        if "identities" not in command:
            return (await run(clusters, Pace(**command))).to_json()
        clusters.extend(await _open(spec, Opened(**command)))
        return json.dumps(len(clusters))

    try:
        await answer_commands(answer)
    finally:
        for cluster in clusters:
            await cluster.close()


if __name__ == "__main__":
    asyncio.run(_serve_commands(PolicySpec.from_json(sys.argv[1])))
