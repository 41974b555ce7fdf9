"""Connections that are no callers: garbage, half a handshake, silence, a flood; good callers notice nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from collections.abc import Iterator

import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from processes import wait_until

from global_learner.service.identity_setup import ENROLL_LIMITS
from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy

MOST_CONNECTIONS = 40
MEMORY_BYTES = 100 << 20
HELLO = bytes.fromhex("16030100a5010000a10303") + b"\x00" * 32
"""How a TLS handshake begins."""
NOISE = {
    "nothing": b"",
    "zeroes": b"\x00" * 100_000,
    "random": random.Random(5).randbytes(100_000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "http2-plain": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "half-a-handshake": HELLO,
    "long-record": b"\x16\x03\x01\xff\xff" + b"A" * 70_000,
    "alert": b"\x15\x03\x03\x00\x02\x02\x28",
}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("connections"), ingest={"max_connections": MOST_CONNECTIONS})
    yield learner
    learner.close()


def talk(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), CALL_SECONDS)
    with contextlib.suppress(OSError):  # it may be closed on us at any byte
        connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it, without having said anything."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("kind", NOISE)
def test_noise_on_a_port_disturbs_nobody(kind: str, learner: HostileLearner) -> None:
    memory, step = learner.memory_bytes(), learner.shown()["head_step"]
    with contextlib.ExitStack() as open_connections:
        for port in (learner.process.port, learner.enroll_port, learner.process.http_port):
            for _ in range(5):
                open_connections.enter_context(talk(port, NOISE[kind]))
        assert learner.good_push().head_step == step + 1
        assert learner.counted()["fedl2_learner_updates_total", "applied"] >= step + 1
    assert learner.memory_bytes() < memory + MEMORY_BYTES


def test_a_flood_of_connections_leaves_room_for_the_log(learner: HostileLearner) -> None:
    step = learner.shown()["head_step"]
    with contextlib.ExitStack() as open_connections:
        flood = [open_connections.enter_context(talk(learner.process.port, HELLO)) for _ in range(3 * MOST_CONNECTIONS)]
        assert learner.good_push().head_step == step + 1  # over the connection that was there before
        wait_until(lambda: sum(map(is_closed, flood)) >= 2 * MOST_CONNECTIONS, "what is too much is closed")
    newcomer = learner.enrolled("newcomer")
    # It finds room once the learner has seen that the flood is gone.
    reply = learner.fleet(newcomer).Register(pb.RegisterRequest(), timeout=CALL_SECONDS, wait_for_ready=True)
    assert reply.incarnation == 1


def test_silent_connections_of_one_host_do_not_close_enrollment_for_others(learner: HostileLearner) -> None:
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    anybody.set_alpn_protocols(["h2"])
    with contextlib.ExitStack() as stack:
        for _ in range(ENROLL_LIMITS.connections):
            silent = socket.create_connection(("127.0.0.1", learner.enroll_port), CALL_SECONDS, ("127.0.0.2", 0))
            try:
                silent = anybody.wrap_socket(silent)
                silent.sendall(NOISE["http2-plain"])
            except OSError:  # there is no room for it any more
                silent.close()
            stack.enter_context(silent)
        learner.forget_channels()
        assert learner.enrolled("latecomer").certificate
