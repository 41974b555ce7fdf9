"""Attackers, a process each: they begin, say so in one line, and go on until they are killed.

Each has what an attacker can have: a reachable port, and for those that name a cluster the certificate of one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from benchmarks.push.cluster import PushingCluster, channel_to
from benchmarks.push.policies import policy
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc

READY = "attacking"
CALL_SECONDS = 30.0
CALLS = 600
CONNECTIONS = 4
SOCKETS = 2300
AT_ONCE = 8
LARGEST_NORM = 990.0
BIG_EVERY_SECONDS = 1.0
TYPES, SPLITS = 60, 12
RSA_BYTES = 384
_RSA = bytes.fromhex("300d06092a864886f70d0101010500")
_RSA_SHA256 = bytes.fromhex("300d06092a864886f70d01010b0500")


@dataclass(frozen=True, slots=True)
class Target:
    """The learner, and the attacker's identity file and name; ports of this machine."""

    port: int
    enroll_port: int
    name: str
    identity: str
    authority: str
    seed: int


def member_of(target: Target) -> PushingCluster:
    """An attacker that is a cluster of the fleet."""
    return PushingCluster(channel_to(f"127.0.0.1:{target.port}", target.identity), target.name, policy().spec)


async def slow_readers(target: Target) -> None:
    """Ask for the head many times, and stop before the answers are read."""
    members = [member_of(target) for _ in range(CONNECTIONS)]
    await members[0].register()
    request = fleet_pb2.PullHeadRequest(incarnation=members[0].incarnation)
    asked = [members[number % CONNECTIONS].fleet.PullHead(request, wait_for_ready=True) for number in range(CALLS)]
    codes = [asyncio.ensure_future(call.code()) for call in asked]
    await asyncio.wait(codes, return_when=asyncio.FIRST_COMPLETED)
    print(READY, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


async def reopened_sockets(target: Target) -> None:
    """Hold connections that say nothing, and open each again as soon as it is closed."""
    loop = asyncio.get_running_loop()
    opened = asyncio.Semaphore(0)

    async def hold() -> None:
        first = True
        while True:
            connection = socket.socket()
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, ("127.0.0.1", target.port))
                if first:
                    opened.release()
                    first = False
                await loop.sock_recv(connection, 1)
            except OSError:
                await asyncio.sleep(0.01)
            finally:
                connection.close()

    holders = [asyncio.ensure_future(hold()) for _ in range(SOCKETS)]
    for _ in holders:
        await opened.acquire()
    print(READY, flush=True)
    await asyncio.gather(*holders)


async def push_flood(target: Target) -> None:
    """Push tiny gradients without a pause."""
    member = member_of(target)
    await member.register()
    tiny = np.full(policy().spec.parameter_count, 1e-9, np.float32)
    await _endlessly(AT_ONCE, lambda: member.push(member.next_update(tiny), CALL_SECONDS, want_weights=False))


async def big_norm(target: Target) -> None:
    """Push a gradient just below the largest norm, now and then."""
    member = member_of(target)
    await member.register()
    gradient = np.random.default_rng(target.seed).standard_normal(policy().spec.parameter_count).astype(np.float32)
    gradient *= LARGEST_NORM / np.linalg.norm(gradient)

    async def now_and_then() -> None:
        await member.push(member.next_update(gradient), CALL_SECONDS, want_weights=False)
        await asyncio.sleep(BIG_EVERY_SECONDS)

    await _endlessly(1, now_and_then)


async def beliefs(target: Target) -> None:
    """Tell speeds that are off by e^10, again and again."""
    member = member_of(target)
    await member.register()
    revision = 0

    async def share() -> None:
        nonlocal revision
        revision += 1
        types = [
            fleet_pb2.TypeStatistics(
                job_type=f"type-{kind}",
                kind="ps",
                ps=[1 + split for split in range(SPLITS)],
                workers=[1 + split for split in range(SPLITS)],
                mean_log_speed=[15.0] * SPLITS,
                count=[10**6] * SPLITS,
            )
            for kind in range(TYPES)
        ]
        request = fleet_pb2.ShareBeliefsRequest(incarnation=member.incarnation, revision=revision, types=types)
        await member.fleet.ShareBeliefs(request, timeout=CALL_SECONDS)

    await _endlessly(AT_ONCE, share)


def slow_signing_request(seed: int) -> bytes:
    """A request (PKCS #10, DER) of 1.5 kB whose signature takes milliseconds to be found wrong: its RSA key's public
    exponent, mostly 17 bits long, is as long as its modulus."""
    random = np.random.default_rng(seed)

    def tagged(tag: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        length = bytes([len(body)]) if len(body) < 128 else b"\x82" + len(body).to_bytes(2, "big")
        return bytes([tag]) + length + body

    def odd(first: bytes) -> bytes:
        return tagged(2, first + random.bytes(RSA_BYTES - 2) + b"\x01")

    key = tagged(3, b"\x00", tagged(0x30, odd(b"\x00\xc0"), odd(b"\x40")))
    asked = tagged(0x30, tagged(2, b"\x00"), tagged(0x30), tagged(0x30, _RSA, key), tagged(0xA0))
    return tagged(0x30, asked, _RSA_SHA256, tagged(3, b"\x00\x01", random.bytes(RSA_BYTES - 1)))


async def csr_flood(target: Target) -> None:
    """Ask for certificates with tokens that are none, and signatures that take long to check."""
    slow = slow_signing_request(target.seed)
    request = fleet_pb2.EnrollRequest(cluster=target.name, token="x" * 43, signing_request=slow)
    credentials = grpc.ssl_channel_credentials(Path(target.authority).read_bytes())
    channel = grpc.aio.secure_channel(f"127.0.0.1:{target.enroll_port}", credentials)
    enrollment = fleet_pb2_grpc.EnrollmentStub(channel)
    await _endlessly(2 * AT_ONCE, lambda: enrollment.Enroll(request, timeout=CALL_SECONDS))


async def busy_neighbour(target: Target) -> None:
    """Compute without a pause, and call nobody: what sharing the machine's cores with any attacker costs by itself."""
    matrix = np.random.default_rng(target.seed).standard_normal((64, 64))
    print(READY, flush=True)
    while True:
        matrix = np.linalg.qr(matrix @ matrix)[0]


async def _endlessly(at_once: int, attack: Callable[[], Awaitable[object]]) -> None:
    """Do it again and again, whatever comes of it; says that it has begun after the first answer."""
    begun = asyncio.Event()

    async def again() -> None:
        while True:
            try:
                await attack()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0)
            begun.set()

    tasks = [asyncio.ensure_future(again()) for _ in range(at_once)]
    await begun.wait()
    print(READY, flush=True)
    await asyncio.gather(*tasks)


ATTACKS: dict[str, Callable[[Target], Awaitable[None]]] = {
    "slow-readers": slow_readers,
    "reopened-sockets": reopened_sockets,
    "push-flood": push_flood,
    "big-norm": big_norm,
    "csr-flood": csr_flood,
    "beliefs": beliefs,
    "busy-neighbour": busy_neighbour,
}


async def _attack(name: str, target: Target) -> None:
    await ATTACKS[name](target)


def _end_with_parent() -> None:
    """End when whoever started this has gone: its end of stdin closes with it."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(_attack(sys.argv[1], Target(**json.loads(sys.argv[2]))))
