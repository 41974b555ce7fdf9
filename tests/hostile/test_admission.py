"""Admission of every call: busy, stuck, too large, each with its word and its room given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from global_learner.errors import Refusal
from global_learner.service.admission import AdmissionInterceptor, Limits, bounded_server
from global_learner.telemetry import Telemetry
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

CALL_SECONDS = 60.0
BEAT = "/fedl2.fleet.v1.Fleet/Heartbeat"


class SlowFleet(rpc.FleetServicer):
    """Answers a heartbeat once it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.arrived = 0

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: object) -> pb.HeartbeatReply:  # noqa: N802
        self.arrived += 1
        await self.go.wait()
        return pb.HeartbeatReply()


@dataclass
class Admission:
    channel: grpc.aio.Channel
    fleet: SlowFleet
    telemetry: Telemetry
    stub: rpc.FleetStub = field(init=False)

    def __post_init__(self) -> None:
        self.stub = rpc.FleetStub(self.channel)

    def refused(self, reason: Refusal, method: str = "Heartbeat") -> float:
        return self.telemetry.refusals.labels(method, reason)._value.get()

    async def until(self, holds) -> None:
        async with asyncio.timeout(CALL_SECONDS):
            while not holds():
                await asyncio.sleep(0)

    async def served(self, meanwhile: Refusal) -> None:
        """A call that is tried again as long as it is refused for one reason."""
        async with asyncio.timeout(CALL_SECONDS):
            while True:
                refused = self.refused(meanwhile)
                try:
                    await self.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
                except grpc.aio.AioRpcError:
                    await self.until(lambda refused=refused: self.refused(meanwhile) > refused)
                else:
                    return


@asynccontextmanager
async def admitting(**limits: float) -> AsyncIterator[Admission]:
    telemetry, fleet = Telemetry(), SlowFleet()
    values = {"message_bytes": 100_000, "calls": 4, "connections": 100, "envelope_bytes": 1000, **limits}
    server = bounded_server(Limits(**values, large_methods=frozenset({"Push"})), telemetry)  # type: ignore[arg-type]
    rpc.add_FleetServicer_to_server(fleet, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Admission(channel, fleet, telemetry)
    await server.stop(0)


async def test_one_call_too_many_is_told_to_come_again_and_the_next_is_taken() -> None:
    async with admitting() as it:
        waiting = [it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS) for _ in range(4)]
        await it.until(lambda: it.fleet.arrived == 4)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "come again" in (caught.value.details() or "")
        assert it.refused(Refusal.TOO_BUSY) == 1
        it.fleet.go.set()
        await asyncio.gather(*waiting)
        await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        assert it.refused(Refusal.TOO_BUSY) == 1


async def test_calls_whose_message_never_comes_give_their_room_back() -> None:
    async with admitting(arrival_seconds=0.05) as it:
        it.fleet.go.set()
        never = asyncio.Event()

        async def nothing() -> AsyncIterator[bytes]:
            await never.wait()
            yield b""

        stuck = [it.channel.stream_unary(BEAT)(nothing(), timeout=CALL_SECONDS) for _ in range(4)]
        await it.until(lambda: it.refused(Refusal.NOT_RECEIVED) == 4)
        await it.served(Refusal.NOT_RECEIVED)  # on a busy machine its own message may come too late as well
        assert it.refused(Refusal.TOO_BUSY) == 0
        for call in stuck:
            call.cancel()


async def test_a_message_is_measured_by_its_methods_own_limit() -> None:
    async with admitting() as it:
        it.fleet.go.set()
        large = pb.HeartbeatRequest(cluster="x" * 2000)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.Heartbeat(large, timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at most 1000 are taken" in (caught.value.details() or "")
        assert it.refused(Refusal.TOO_LARGE) == 1
        assert it.fleet.arrived == 0
        with pytest.raises(grpc.aio.AioRpcError) as caught:  # it is small enough, and nobody serves it here
            await it.stub.Push(pb.PushRequest(cluster="x" * 2000), timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    async with admitting() as it:
        calls = [it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS) for _ in range(4)]
        await it.until(lambda: it.fleet.arrived == 4)
        for call in calls:
            call.cancel()
        it.fleet.go.set()
        await it.served(Refusal.TOO_BUSY)


def test_the_interceptors_limits_lie_within_grpcs_own() -> None:
    assert issubclass(AdmissionInterceptor, grpc.aio.ServerInterceptor)
    limits = Limits(message_bytes=100, calls=1, connections=1, large_methods=frozenset({"Push"}), envelope_bytes=1000)
    assert limits.of("Push") == limits.of("Heartbeat") == 100
