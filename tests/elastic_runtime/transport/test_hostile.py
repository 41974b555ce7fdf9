"""What strangers and broken peers send: refused, counted, never shown to the caller, and the token is never logged."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import zmq

from elastic_runtime.transport import (
    BadAddress,
    BadMessage,
    CurveKeys,
    Message,
    PeerLost,
    PeerUnreachable,
    PeerUp,
    TransportRefusal,
    authentication,
    counters,
)
from elastic_runtime.transport.authentication import answer, challenge, prove, sharing_proof
from elastic_runtime.transport.regions import SEALS
from elastic_runtime.transport.wire import (
    Challenge,
    Hello,
    MessageHead,
    Reference,
    pack_acknowledgement,
    pack_challenge,
    pack_hello,
    pack_message,
    pack_proof,
    unpack_challenge,
    unpack_hello,
    unpack_proof,
)

MB = 1024 * 1024
TOKEN = "of the job"  # noqa: S105 -- guards nothing
LINK = bytes(range(16))


class Intruder:
    """A ZeroMQ socket that knows the token and says what it wants; or that heard who knows it, and repeats that."""

    def __init__(self, server, *, proof_of: str = "worker-9", heard: bytes | None = None) -> None:
        self.server = server
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.routing_id = b"L" + LINK
        self.socket.plain_username = proof_of.encode()
        self.socket.plain_password = heard or prove(TOKEN, proof_of, server.name).encode()
        self.socket.connect(json.loads(server.address)["tcp"])

    def hello(self, name: str = "worker-9") -> None:
        self.socket.send(pack_hello(Hello(bytes(16), LINK, name)))

    def challenge(self) -> Challenge:
        """What the server answers to a hello."""
        deadline = time.monotonic() + 60.0
        while not self.socket.poll(1):
            assert time.monotonic() < deadline, "no challenge came"
            assert self.server.receive(0.01) is None
        return unpack_challenge(self.socket.recv())

    def prove(self) -> None:
        """Say hello, and answer the challenge as one may who knows the token."""
        self.hello()
        said = self.challenge()
        self.socket.send(pack_proof(answer(TOKEN, Hello(bytes(16), LINK, "worker-9"), self.server.name, said)))

    def message(self, sequence: int, *references: Reference, header: bytes = b"") -> None:
        self.socket.send(pack_message(MessageHead(sequence, MB, references, header)))

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def server(tcp):
    return tcp.endpoint("ps-0")


@pytest.fixture
def intruder(server):
    made = Intruder(server)
    yield made
    made.close()


def _messages(wire, server):
    return [event for event in wire.events[server] if isinstance(event, Message)]


def test_a_wrong_token_is_refused_counted_and_not_logged(tcp, capsys, monkeypatch):
    monkeypatch.setattr(counters, "_QUIET_SECONDS", 3600.0)  # however slow this machine
    server = tcp.endpoint("ps-0")
    stranger = tcp.endpoint("worker-0", job_token="a guess")  # noqa: S106
    stranger.connect("ps-0", server.address)
    tcp.until(lambda: server.refusals[TransportRefusal.BAD_TOKEN] > 3)
    with pytest.raises(PeerUnreachable, match="it refused us: wrong token or key"):
        stranger.send("ps-0", b"", timeout_seconds=0.1)
    assert not tcp.events[server]
    said = capsys.readouterr()
    assert (said.out + said.err).count("bad-token") == 1  # it knocked several times
    assert "a guess" not in said.out + said.err
    assert TOKEN not in said.out + said.err


@pytest.mark.parametrize("wire", ["tcp+curve", "shared+curve"], indirect=True)
@pytest.mark.parametrize("its_key_comes", [True, False])
def test_a_key_that_belongs_to_no_peer_is_refused_and_spoken_of_if_it_stays_so(
    wire, its_key_comes, capsys, monkeypatch
):
    if its_key_comes:
        monkeypatch.setattr(authentication, "_UNKNOWN_SECONDS", 3600.0)  # however slow this machine
    server = wire.endpoint("ps-0")
    stranger = wire.endpoint("worker-0")
    server.forbid("worker-0")
    stranger.connect("ps-0", server.address)
    wire.until(lambda: server.refusals[TransportRefusal.BAD_KEY] > 0)
    assert not wire.events[server]
    if its_key_comes:
        server.allow("worker-0", wire.keys["worker-0"].public)
        wire.until(lambda: bool(wire.events[server]))
        assert isinstance(wire.events[server][0], PeerUp)
    server.close()
    said = capsys.readouterr()
    assert ("bad-key" in said.out + said.err) is not its_key_comes
    assert "sharing" not in said.out + said.err


@pytest.mark.parametrize("wire", ["tcp+curve"], indirect=True)
def test_a_key_speaks_only_for_its_own_peer(wire):
    server = wire.endpoint("ps-0")
    stranger = wire.endpoint("worker-0")
    server.allow("worker-0", None)
    server.allow("worker-1", wire.keys["worker-0"].public)  # so our stranger is worker-1, whatever it says
    stranger.connect("ps-0", server.address)
    wire.until(lambda: server.refusals[TransportRefusal.BAD_NAME] > 0)
    assert not wire.events[server]


@pytest.mark.parametrize("wire", ["tcp+curve"], indirect=True)
def test_whoever_sits_at_an_address_without_its_key_hears_nothing(wire):
    worker, impostor = wire.endpoint("worker-0"), wire.endpoint("ps-0")
    address = {**json.loads(impostor.address), "public_key": CurveKeys.generate().public}
    worker.connect("ps-0", json.dumps(address))
    with pytest.raises(PeerUnreachable):
        worker.send("ps-0", b"secret", timeout_seconds=0.3)
    wire.turn()
    assert not wire.events[impostor]


def test_without_curve_a_name_has_to_be_the_one_that_was_proved(tcp, server, intruder):
    intruder.hello("worker-0")
    tcp.until(lambda: server.refusals[TransportRefusal.BAD_NAME] == 1)
    assert not tcp.events[server]
    assert intruder.socket.poll(60_000)
    assert b"bad-name: 'worker-0' is not what was proved" in intruder.socket.recv()


def test_a_forbidden_peer_is_cut_off_and_let_in_again_when_allowed(tcp, server):
    worker = tcp.endpoint("worker-0")
    tcp.connect((worker, server))
    server.forbid("worker-0")
    worker.send("ps-0", b"still there")
    tcp.until(lambda: server.refusals[TransportRefusal.FORBIDDEN] > 0 and not worker.is_up("ps-0"))
    assert not _messages(tcp, server)
    server.allow("worker-0")
    tcp.until(lambda: worker.is_up("ps-0"))
    worker.send("ps-0", b"back")
    assert tcp.message(server).header == b"back"


def test_a_message_before_the_hello_is_dropped(tcp, server, intruder):
    intruder.message(1, header=b"no hello")
    intruder.socket.send_multipart([b"several", b"frames"])
    tcp.until(lambda: server.refusals[TransportRefusal.UNKNOWN] == 2)
    assert not tcp.events[server]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([b"garbage"], id="garbage"),
        pytest.param([b""], id="empty"),
        pytest.param([pack_message(MessageHead(1, MB, (), b"header"))[:-1]], id="cut short"),
        pytest.param([pack_message(MessageHead(1, MB, (), bytes(65537)))], id="header too large"),
        pytest.param([pack_message(MessageHead(1, MB, (Reference(0, 0, 1),) * 5000, b""))], id="too many parts"),
        pytest.param([pack_message(MessageHead(1, MB, (Reference(0, 9, 3),), b""))], id="part ends before it starts"),
        pytest.param([pack_message(MessageHead(1, 1, (Reference(0, 0, MB),), b""))], id="cut into single bytes"),
        pytest.param([pack_message(MessageHead(1, MB, (Reference(0, 0, 2**60),), b""))], id="message too large"),
        pytest.param([pack_message(MessageHead(1, MB, (Reference(0, 0, 99),), b"")), b"98"], id="frame too short"),
        pytest.param(
            [pack_message(MessageHead(1, MB, (Reference(0, 0, 2 * MB),), b"")), bytes(MB + 1)], id="frame too long"
        ),
        pytest.param([pack_hello(Hello(bytes(16), LINK, "worker-9"))], id="second hello"),
    ],
)
def test_malformed_frames_end_the_connection_and_reach_nobody(tcp, server, intruder, frames):
    intruder.prove()
    for frame in frames:
        intruder.socket.send(frame)
    intruder.message(2, header=b"after")
    tcp.until(lambda: server.refusals[TransportRefusal.MALFORMED] == 1)
    assert intruder.socket.poll(60_000)
    assert b"malformed" in intruder.socket.recv()
    assert not _messages(tcp, server)
    sound = tcp.endpoint("worker-0")
    tcp.connect((sound, server))
    sound.send("ps-0", b"others are served")
    assert tcp.message(server).header == b"others are served"


def test_a_message_with_a_number_from_before_is_dropped_and_a_gap_is_counted(tcp, server, intruder):
    intruder.prove()
    for sequence, header in ((1, b"a"), (4, b"b"), (4, b"again"), (2, b"late"), (5, b"c")):
        intruder.message(sequence, Reference(0, 0, 10), header=header)
        intruder.socket.send(b"0123456789")
    assert [tcp.message(server).header for _ in range(3)] == [b"a", b"b", b"c"]
    assert tcp.losses(server, "worker-9") == (0, 2)
    assert server.refusals[TransportRefusal.DUPLICATE] == 2


def test_memory_that_was_not_handed_over_is_not_read(tcp, server, intruder):
    intruder.prove()
    intruder.message(1, Reference(7, 0, 100))
    tcp.until(lambda: server.refusals[TransportRefusal.OUT_OF_RANGE] == 1)
    assert not _messages(tcp, server)


def test_a_reference_beyond_a_region_is_not_read(shared_wire):
    worker, server = shared_wire.pair()
    region = worker.region("gradients", MB)
    region.size_bytes += 1  # a sender that lies
    region.memory = memoryview(bytes(MB + 1))
    worker.links["ps-0"]._regions.give = lambda region: None
    worker.send("ps-0", b"", [region.part()])
    shared_wire.until(lambda: server.refusals[TransportRefusal.OUT_OF_RANGE] == 1)
    assert not _messages(shared_wire, server)


def _packets(server, *packets, proof: str | None = None):
    """A connection that hands over memory by its own rules; each packet is (fields, size, seals)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60.0)
    connection.connect("\0" + json.loads(server.address)["share"])
    if proof is None:
        proof = sharing_proof(TOKEN, "sender", "worker-9", server.name, LINK, bytes(32))
    hello = {"hello": "worker-9", "link": LINK.hex(), "proof": proof}
    for fields, size_bytes, seals in [(hello, mmap.PAGESIZE, SEALS), *packets]:
        descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        socket.send_fds(connection, [json.dumps(fields).encode()], [descriptor])
        os.close(descriptor)
    return connection


def _open_files():
    """Of this process; other threads of it open and close theirs meanwhile."""
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(path.readlink())


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(({"region": 1, "size_bytes": MB}, MB, SEALS & ~fcntl.F_SEAL_SHRINK), id="could be cut short"),
        pytest.param(({"region": 1, "size_bytes": 2 * MB}, MB, SEALS), id="smaller than announced"),
        pytest.param(({"region": 1, "size_bytes": 0}, 0, SEALS), id="empty"),
        pytest.param(({"region": "x", "size_bytes": MB}, MB, SEALS), id="no number"),
        pytest.param(({}, MB, SEALS), id="no fields"),
    ],
)
def test_memory_that_could_fail_its_reader_is_refused(shared_wire, packet):
    server = shared_wire.endpoint("ps-0")
    with _packets(server, packet) as connection:
        shared_wire.until(lambda: server.refusals[TransportRefusal.SHARING] == 1)
        answered = sharing_proof(TOKEN, "reader", "worker-9", server.name, LINK, bytes(32))
        assert connection.recv(100) == answered.encode()
        assert connection.recv(100) == b""
    assert not [path for path in _open_files() if path.startswith("/memfd:test")]


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param("", id="none"),
        pytest.param(sharing_proof("a guess", "sender", "worker-9", "ps-0", LINK, bytes(32)), id="another token's"),
        pytest.param(sharing_proof(TOKEN, "sender", "worker-9", "ps-0", bytes(16), bytes(32)), id="of another link"),
        pytest.param(sharing_proof(TOKEN, "sender", "worker-9", "ps-0", LINK, bytes(31) + b"1"), id="of another probe"),
        pytest.param(sharing_proof(TOKEN, "reader", "worker-9", "ps-0", LINK, bytes(32)), id="what a reader says"),
    ],
)
def test_memory_from_somebody_without_the_token_is_refused(shared_wire, proof):
    server = shared_wire.endpoint("ps-0")
    with _packets(server, proof=proof) as connection:
        shared_wire.until(lambda: server.refusals[TransportRefusal.SHARING] == 1)
        assert connection.recv(100) == b""


class Impostor:
    """Sits at the address of a server that died, lets everybody in, and keeps what it is told."""

    def __init__(self, tcp_address: str) -> None:
        self._context = zmq.Context()
        self._thread = _LetsAllIn(self._context)
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.plain_server = True
        self.socket.zap_domain = b"fedl2"
        self.socket.bind(tcp_address)
        self.heard: list[bytes] = []

    def hears(self) -> tuple[bytes, bytes]:
        """From whom, and what."""
        peer, frame = self.socket.recv_multipart()
        self.heard.append(frame)
        return peer, frame

    def close(self) -> None:
        self.socket.close()
        self._thread.close()
        self._context.destroy(linger=0)


class _LetsAllIn:
    def __init__(self, context: zmq.Context) -> None:
        self.passwords: list[bytes] = []
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind("inproc://zeromq.zap.01")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ends = threading.Event()
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            if self._socket.poll(20):
                version, request, *_, name, password = self._socket.recv_multipart()
                self.passwords.append(password)
                self._socket.send_multipart([version, request, b"200", b"OK", name, b""])
        self._socket.close()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def impostor(tcp, server):
    """In the place of a server that has met worker-9 before."""
    made = Impostor("tcp://127.0.0.1:0")
    yield made
    made.close()


FORGED = {
    "another token's": lambda hello: pack_challenge(challenge("a guess", hello, "ps-0")),
    "another server's": lambda hello: pack_challenge(challenge(TOKEN, hello, "ps-1")),
    "another connection's": lambda hello: pack_challenge(challenge(TOKEN, hello._replace(link=LINK), "ps-0")),
    "an acknowledgement": lambda hello: pack_acknowledgement(1),
    "garbage": lambda hello: b"garbage",
    "cut short": lambda hello: pack_challenge(challenge(TOKEN, hello, "ps-0"))[:-1],
}


@pytest.mark.parametrize("forged", FORGED)
def test_whoever_sits_at_the_address_of_a_dead_server_hears_a_hello_and_nothing_else(tcp, server, impostor, forged):
    worker = tcp.endpoint("worker-0")
    place = impostor.socket.getsockopt_string(zmq.LAST_ENDPOINT)
    worker.connect("ps-0", json.dumps({**json.loads(server.address), "tcp": place}))
    tcp.until(lambda: worker.is_up("ps-0"))
    worker.send("ps-0", b"gradient")
    met = len(tcp.events[worker])
    tcp.until(lambda: bool(impostor.socket.poll(1)))
    peer, hello = impostor.hears()
    impostor.socket.send_multipart([peer, FORGED[forged](unpack_hello(hello))])
    tcp.until(lambda: any(isinstance(event, PeerLost) for event in tcp.events[worker][met:]))
    (lost,) = [event for event in tcp.events[worker][met:] if isinstance(event, PeerLost)]
    assert list(lost.unacknowledged) == [1]
    assert ("does not have the job's token" in lost.reason) is ("'s" in forged)
    while impostor.socket.poll(50):
        impostor.hears()
    assert all(unpack_hello(frame).name == "worker-0" for frame in impostor.heard)
    worker.connect("ps-0", server.address)
    tcp.connect((worker, server))
    worker.send("ps-0", b"again")
    assert tcp.message(server).header == b"again"


def test_what_was_overheard_lets_nobody_in_and_disturbs_nobody(tcp, server, impostor):
    worker = tcp.endpoint("worker-9")
    place = impostor.socket.getsockopt_string(zmq.LAST_ENDPOINT)
    worker.connect("ps-0", json.dumps({**json.loads(server.address), "tcp": place}))
    tcp.until(lambda: bool(impostor.socket.poll(1)))
    peer, hello = impostor.hears()
    said = challenge(TOKEN, unpack_hello(hello), "ps-0")  # the true server's, overheard
    impostor.socket.send_multipart([peer, pack_challenge(said)])
    tcp.until(lambda: bool(impostor.socket.poll(1)))
    _, proof = impostor.hears()
    assert unpack_proof(proof) == answer(TOKEN, unpack_hello(hello), "ps-0", said)
    worker.connect("ps-0", server.address)
    tcp.connect((worker, server))
    repeated = Intruder(server, heard=impostor._thread.passwords[0])
    try:
        repeated.socket.send(hello)
        assert repeated.challenge() != said
        repeated.socket.send(proof)
        repeated.message(1, header=b"from nobody")
        tcp.until(lambda: server.refusals[TransportRefusal.BAD_TOKEN] == 1)
        assert repeated.socket.poll(60_000)
        assert b"bad-token" in repeated.socket.recv()
        worker.send("ps-0", b"undisturbed")
        assert tcp.message(server).header == b"undisturbed"
        assert tcp.losses(worker, "ps-0") == (0, 0)
        assert not tcp.events[server]
    finally:
        repeated.close()


@pytest.mark.parametrize(
    "frames", [[b"garbage"], [pack_proof(bytes(31))], [pack_proof(bytes(33))], [b"two", b"frames"]]
)
def test_a_challenge_that_is_answered_by_something_else_ends_the_connection(tcp, server, intruder, frames):
    intruder.hello()
    intruder.challenge()
    intruder.socket.send_multipart(frames)
    intruder.message(1, header=b"after")
    tcp.until(lambda: server.refusals[TransportRefusal.MALFORMED] == 1)
    assert not tcp.events[server]


def test_bytes_that_are_no_protocol_at_all_are_counted(tcp, server):
    host, port = json.loads(server.address)["tcp"].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n" + bytes(200))
        tcp.until(lambda: server.refusals[TransportRefusal.HANDSHAKE] >= 1)
    assert not tcp.events[server]


@pytest.mark.parametrize("text", ["", "{}", "[]", "tcp://127.0.0.1:1", '{"tcp": 3}', "null"])
def test_an_address_that_is_none_is_said_so(tcp, text):
    worker = tcp.endpoint("worker-0")
    with pytest.raises(BadAddress, match="not the address of a data endpoint"):
        worker.connect("ps-0", text)


def test_names_have_a_bound(tcp):
    with pytest.raises(BadMessage, match="1 to 128 bytes"):
        tcp.endpoint("w" * 129)


def test_an_address_that_is_taken_is_said_so(tcp, server):
    taken = json.loads(server.address)["tcp"]
    with pytest.raises(BadAddress, match=f"cannot listen at {taken}: Address already in use"):
        tcp.endpoint("ps-1", bind=taken)


@pytest.mark.parametrize("wire", ["tcp+curve"], indirect=True)
def test_a_peer_without_a_key_is_not_connected_to(wire, tcp):
    with pytest.raises(BadAddress, match="the address of ps-0 has no CURVE key"):
        wire.endpoint("worker-0").connect("ps-0", tcp.endpoint("ps-0").address)
