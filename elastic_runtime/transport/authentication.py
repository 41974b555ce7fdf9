"""Authentication of peers: a thread that answers ZeroMQ's questions about each connection before it carries a message.

With CURVE a connection's key must be one that `allow` named, and its peer is the one that it was named for. Without,
the peer proves (ZeroMQ's PLAIN mechanism) that it has the job's token: not by the token itself but by a digest of it
with both names and a random number, so that it never crosses the network. It is a thread of its own so that peers
connect, and are refused, while the application computes.

Such a digest can be overheard and repeated, and tells nothing about whoever listens. So both sides then prove anew, by
what the other one has just drawn (`challenge`, `answer`), before anything that matters is said or believed. What
follows is neither encrypted nor sealed: use CURVE where somebody could stand in between.

Source: ZeroMQ's RFC 27, ZAP (ZeroMQ Authentication Protocol); challenge and response as in RFC 5802 (SCRAM), without
its passwords of few bits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from elastic_runtime.transport.counters import EndpointRefusalLog
from elastic_runtime.transport.errors import TransportRefusal
from elastic_runtime.transport.settings import MOST_NAME_BYTES, Clock
from elastic_runtime.transport.wire import NONCE_BYTES, Challenge, Hello

_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_STOP_ADDRESS = "inproc://fedl2.identity.stop"
DOMAIN = b"fedl2"
"""Of ZAP: the sockets that ask."""
_UNKNOWN_SECONDS = 5.0
"""A new member's key may come later than the member itself: only a key that is unknown for so long is logged."""
_POLL_MS = 1000
_MOST_UNKNOWN = 64


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A CURVE key pair, in Z85 (40 characters each)."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> CurveKeys:
        """A new pair, from the system's randomness."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


def prove(token: str, sender: str, receiver: str) -> str:
    """That whoever says it has the job's token, or heard somebody prove it; for this sender and receiver only."""
    nonce = secrets.token_hex(16)
    return f"{nonce}.{_digest(token, 'connect', sender, receiver, nonce).hex()}"


def proved(token: str, sender: str, receiver: str, proof: str) -> bool:
    """Whether `proof` was made by `prove` with the same arguments."""
    nonce, _, digest = proof.partition(".")
    return hmac.compare_digest(digest.encode(), _digest(token, "connect", sender, receiver, nonce).hex().encode())


def challenge(token: str, hello: Hello, receiver: str) -> Challenge:
    """The receiver's answer to a hello: that it has the token, and what the sender has to answer."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return Challenge(nonce, _of_hello(token, "receiver", hello, receiver, nonce))


def is_genuine(token: str, hello: Hello, receiver: str, given: Challenge) -> bool:
    """Whether `given` was made by `challenge` with the same arguments."""
    return hmac.compare_digest(given.proof, _of_hello(token, "receiver", hello, receiver, given.nonce))


def answer(token: str, hello: Hello, receiver: str, given: Challenge) -> bytes:
    """The sender's answer to a challenge; the receiver compares it with its own."""
    return _of_hello(token, "sender", hello, receiver, given.nonce)


def sharing_proof(token: str, side: str, sender: str, receiver: str, link: bytes, nonce: bytes) -> str:
    """That one side (`sender`, `reader`) of a connection which hands over memory has the token; hex."""
    return _digest(token, f"sharing, {side}", sender, receiver, link, nonce).hex()


def _of_hello(token: str, side: str, hello: Hello, receiver: str, nonce: bytes) -> bytes:
    return _digest(token, side, hello.name, receiver, hello.incarnation, hello.link, nonce)


def _digest(token: str, *parts: str | bytes) -> bytes:
    encoded = [each.encode() if isinstance(each, str) else each for each in ("fedl2 data plane 2", *parts)]
    sealed = b"".join(len(part).to_bytes(4, "little") + part for part in encoded)
    return hmac.new(token.encode(), sealed, hashlib.sha256).digest()


class ZapAuthenticator:
    """Lets connections in or refuses them, for one ZeroMQ context."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        token: str,
        *,
        curve: bool,
        log: EndpointRefusalLog,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._name = name
        self._token = token
        self._curve = curve
        self._log = log
        self._lock = threading.Lock()
        self._peer_by_key: dict[bytes, str] = {}
        self._forbidden: set[str] = set()
        self._refused: dict[TransportRefusal, int] = {}
        self._unknown: dict[bytes, tuple[float, str]] = {}
        self._questions: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._questions.linger = 0
        self._questions.bind(_ZAP_ADDRESS)
        self._stopped: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._stopped.linger = 0
        self._stopped.bind(_STOP_ADDRESS)
        self._stop: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._stop.linger = 0
        self._stop.connect(_STOP_ADDRESS)
        self._thread = threading.Thread(target=self._answer_all, name="data-plane-identity", daemon=True)
        self._thread.start()

    def allow(self, peer: str, public_key: str | None) -> None:
        """Let `peer` in; with CURVE, with this key (Z85) and no other."""
        with self._lock:
            self._forbidden.discard(peer)
            self._drop_keys(peer)
            if public_key:
                self._peer_by_key[public_key.encode()] = peer

    def forbid(self, peer: str) -> None:
        """Refuse `peer` from now on."""
        with self._lock:
            self._forbidden.add(peer)
            self._drop_keys(peer)

    def is_forbidden(self, peer: str) -> bool:
        """Whether `forbid` was called for it since it was last allowed."""
        with self._lock:
            return peer in self._forbidden

    def take_refused(self) -> dict[TransportRefusal, int]:
        """How many connections were refused since the last call."""
        with self._lock:
            refused, self._refused = self._refused, {}
        return refused

    def close(self) -> None:
        """End the thread; connections that are not let in by now never are."""
        self._stop.send(b"")
        self._thread.join()
        self._stop.close()

    def _drop_keys(self, peer: str) -> None:
        for key in [key for key, owner in self._peer_by_key.items() if owner == peer]:
            del self._peer_by_key[key]

    def _answer_all(self) -> None:
        poller = zmq.Poller()
        poller.register(self._questions, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(_POLL_MS if self._unknown else None))
            self._log_unknown_keys(everything=self._stopped in ready)
            if self._stopped in ready:
                break
            if self._questions not in ready:
                continue
            version, request, _domain, address, _identity, mechanism, *credentials = self._questions.recv_multipart()
            peer, refusal = self._judge(mechanism, credentials)
            if refusal is not None:
                with self._lock:
                    self._refused[refusal] = self._refused.get(refusal, 0) + 1
                where = address.decode(errors="replace")
                if refusal is TransportRefusal.BAD_KEY and len(self._unknown) < _MOST_UNKNOWN:
                    self._unknown.setdefault(z85.encode(credentials[0]), (self._clock(), where))
                else:
                    self._log.write(refusal, address=where, said_name=peer[:MOST_NAME_BYTES])
            status, user = (b"400", b"") if refusal else (b"200", peer.encode())
            text = refusal.value.encode() if refusal else b"OK"
            self._questions.send_multipart([version, request, status, text, user, b""])
        self._questions.close()
        self._stopped.close()

    def _log_unknown_keys(self, *, everything: bool) -> None:
        late = self._clock() - _UNKNOWN_SECONDS
        for key, (since_seconds, address) in list(self._unknown.items()):
            if everything or since_seconds <= late:
                del self._unknown[key]
                with self._lock:
                    known = key in self._peer_by_key
                if not known:
                    self._log.write(TransportRefusal.BAD_KEY, address=address, said_name="")

    def _judge(self, mechanism: bytes, credentials: list[bytes]) -> tuple[str, TransportRefusal | None]:
        if self._curve and mechanism == b"CURVE" and len(credentials) == 1:
            with self._lock:
                peer = self._peer_by_key.get(z85.encode(credentials[0]))
            return (peer, None) if peer is not None else ("", TransportRefusal.BAD_KEY)
        if not self._curve and mechanism == b"PLAIN" and len(credentials) == 2:
            name = credentials[0].decode(errors="replace")
            if not proved(self._token, name, self._name, credentials[1].decode(errors="replace")):
                return name, TransportRefusal.BAD_TOKEN
            return (name, TransportRefusal.FORBIDDEN) if self.is_forbidden(name) else (name, None)
        return "", TransportRefusal.HANDSHAKE
