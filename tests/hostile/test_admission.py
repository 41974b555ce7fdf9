"""Admission of every call: busy, stuck, too large, each with its word and its room given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from global_learner.errors import CallRefusal
from global_learner.section_settings import CallSettings
from global_learner.service.admission import AdmissionLimits, bounded_server, calling_host
from global_learner.service.lanes import QueueShare, one_lane
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

CALL_SECONDS = 60.0
BEAT = "/fedl2.fleet.v1.Fleet/Heartbeat"


UNKNOWN_FIELD = b"\xfa\x3f"
"""Of number 1023, bytes: kept by protobuf, and sent with what is known."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header(name: bytes, value: bytes) -> bytes:
    """A header field without indexing, in HPACK."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def unread_calls(count: int) -> bytes:
    """So many heartbeats over HTTP/2, by a caller that never allows for more than a first piece of the answer."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": BEAT.encode(),
        b":authority": b"x",
        b"te": b"trailers",
    }
    fields |= {b"te": b"trailers", b"content-type": b"application/grpc"}
    head = b"".join(header(name, value) for name, value in fields.items())
    sent = PREFACE + frame(4, 0, 0, b"")
    for number in range(count):
        stream = 2 * number + 1
        sent += frame(1, 4, stream, head) + frame(0, 1, stream, bytes(5))
    return sent


class SlowFleet(rpc.FleetServicer):
    """Answers a heartbeat once it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.arrived = 0
        self.answer_bytes = 0

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: object) -> pb.HeartbeatReply:  # noqa: N802
        self.arrived += 1
        await self.go.wait()
        return pb.HeartbeatReply(assigned_version=1) if not self.answer_bytes else self.large()

    def large(self) -> pb.HeartbeatReply:
        reply = pb.HeartbeatReply()
        reply.MergeFromString(UNKNOWN_FIELD + varint(self.answer_bytes) + bytes(self.answer_bytes))
        return reply


@dataclass
class Admission:
    channel: grpc.aio.Channel
    fleet: SlowFleet
    telemetry: LearnerTelemetry
    address: tuple[str, int]
    stub: rpc.FleetStub = field(init=False)

    def __post_init__(self) -> None:
        self.stub = rpc.FleetStub(self.channel)

    def refused(self, reason: CallRefusal, method: str = "Heartbeat") -> float:
        return self.telemetry.refusals.labels(method, reason)._value.get()

    async def until(self, holds) -> None:
        async with asyncio.timeout(CALL_SECONDS):
            while not holds():
                await asyncio.sleep(0)

    async def served(self, meanwhile: CallRefusal) -> None:
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
async def admitting(**patience: float) -> AsyncIterator[Admission]:
    telemetry, fleet = LearnerTelemetry(), SlowFleet()
    patience = CallSettings.model_validate({"wait_seconds": 0.05, **patience})
    share = QueueShare(seats=4, seats_per_caller=4, waiting_per_caller=2, bytes_per_caller=1_000_000)
    limits = AdmissionLimits(100_000, 100, patience, frozenset({"Push"}), envelope_bytes=1000)
    server = bounded_server(limits, calling_host, one_lane(share), telemetry)
    rpc.add_FleetServicer_to_server(fleet, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Admission(channel, fleet, telemetry, ("127.0.0.1", port))
    await server.stop(0)


async def test_a_call_that_finds_no_seat_in_time_is_told_to_come_again_and_the_next_is_taken() -> None:
    async with admitting() as it:
        waiting = [it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS) for _ in range(4)]
        await it.until(lambda: it.fleet.arrived == 4)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "come again" in (caught.value.details() or "")
        assert it.refused(CallRefusal.TOO_BUSY) == 1
        it.fleet.go.set()
        await asyncio.gather(*waiting)
        await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        assert it.refused(CallRefusal.TOO_BUSY) == 1


async def test_calls_whose_message_never_comes_give_their_room_back() -> None:
    async with admitting(arrival_seconds=0.05) as it:
        it.fleet.go.set()
        never = asyncio.Event()

        async def nothing() -> AsyncIterator[bytes]:
            await never.wait()
            yield b""

        stuck = [it.channel.stream_unary(BEAT)(nothing(), timeout=CALL_SECONDS) for _ in range(4)]
        await it.until(lambda: it.refused(CallRefusal.NOT_RECEIVED) == 4)
        await it.served(CallRefusal.NOT_RECEIVED)  # on a busy machine its own message may come too late as well
        assert it.refused(CallRefusal.TOO_BUSY) == 0
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
        assert it.refused(CallRefusal.TOO_LARGE) == 1
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
        await it.served(CallRefusal.TOO_BUSY)


async def test_a_caller_with_its_share_taken_and_its_queue_full_is_refused_at_once() -> None:
    async with admitting(wait_seconds=CALL_SECONDS) as it:
        open_calls = [it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS) for _ in range(6)]
        await it.until(lambda: it.fleet.arrived == 4)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert it.refused(CallRefusal.SHARE_TAKEN) == 1
        it.fleet.go.set()
        await asyncio.gather(*open_calls)
        assert it.fleet.arrived == 6


async def test_an_answer_that_nobody_reads_is_given_up_and_its_seat_is_free() -> None:
    async with admitting(send_seconds=0.05) as it:
        it.fleet.go.set()
        it.fleet.answer_bytes = 32 << 20
        host, port = it.address
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        writer.write(unread_calls(4))
        # While an answer is unread its caller begins no other: of four at once some may find no place in the queue, and
        # on a slow machine no seat in time.
        ends = (CallRefusal.NOT_SENT, CallRefusal.SHARE_TAKEN, CallRefusal.TOO_BUSY)
        await it.until(lambda: sum(map(it.refused, ends)) == 4)
        assert it.refused(CallRefusal.NOT_SENT) >= 1
        it.fleet.answer_bytes = 0
        await it.stub.Heartbeat(pb.HeartbeatRequest(), timeout=CALL_SECONDS)
        writer.close()
        del reader


def test_a_messages_largest_size_is_its_methods_within_the_servers() -> None:
    limits = AdmissionLimits(message_bytes=100, connections=1, large_methods=frozenset({"Push"}), envelope_bytes=1000)
    assert limits.of("Push") == limits.of("Heartbeat") == 100
