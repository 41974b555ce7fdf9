"""Sessions of the control plane: both sides show that they have the job's token, which itself is never sent.

A caller opens a session with a random number and is answered with two of the coordinator's, and with a proof, a keyed
digest of all three: so it knows the coordinator before it says anything. Of the same numbers both derive the session's
key. Each request then carries a digest, under that key, of its method, its number in the session, its time and its
bytes; so do the answers, and the refusals. Whoever listens in between learns nothing that can be used: a request that
is sent again has a number that was there, one that was held back is late, and another coordinator, or the same one
started again, does not know the session. Nothing is encrypted here; TLS does that.

Where it stands in a message: at its end, as a field that no message has, so that a message with it is still one.

Source: SCRAM (RFC 5802) for mutual proof by digests of both sides' random numbers; RFC 6479 for the window of numbers.
Deviation: the secret is 32 random bytes and no password, so it is not stretched.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_runtime.generated import elastic_pb2 as pb

RANDOM_BYTES = 32
"""Of a session's name, and of each side's random number."""
LATEST_SECONDS = 60.0
"""How late a request may come by its own time; a call's deadline is seconds, and clocks drift by less in a day."""
WINDOW = 64
"""Requests of a session may overtake each other by so many; a member has a handful under way at once."""
MOST_UNPROVEN = 1024
"""Sessions that nobody has used yet; more are a mistake or an attack, and the oldest is forgotten."""
_MOST_PROVEN = 4096
"""Sessions in use: more than a job has members and tools; whoever is forgotten opens another one."""
_DIGEST_BYTES = 32
_CALL = struct.Struct(f">{RANDOM_BYTES}sQQ{_DIGEST_BYTES}s")
_FIELD = b"\xfa\x7f"
"""Number 2047, of bytes, in a protobuf message; their number follows, which is below 128."""
_CALL_TAG, _REPLY_TAG = _FIELD + bytes([_CALL.size]), _FIELD + bytes([_DIGEST_BYTES])
_NUMBERS = struct.Struct(">QQ")


class Unproven(Exception):
    """The message does not show the job's token, or came before."""


class UnknownSession(Unproven):
    """It is of a session that is not known (any more): its sender is to open another one."""


def _detach(data: bytes, tag: bytes, size_bytes: int) -> tuple[bytes, bytes]:
    start = len(data) - size_bytes - len(tag)
    if start < 0 or data[start : start + len(tag)] != tag:
        raise Unproven("nothing in it shows that its sender has the job's token")
    return data[:start], data[start + len(tag) :]


def session_of(data: bytes) -> bytes:
    """The session's name in a request, by which one process finds the coordinator of several; it proves nothing.

    Raises:
        Unproven: it names none.
    """
    _, tail = _detach(data, _CALL_TAG, _CALL.size)
    name: bytes = _CALL.unpack(tail)[0]
    return name


def _digest(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """Keyed, of things each with its length before it: nothing can be read as something else."""
    keyed = hmac.new(key, digestmod=hashlib.sha256)
    for one in (b"fedl2 control", purpose.encode(), *parts):
        keyed.update(struct.pack(">Q", len(one)) + one)
    return keyed.digest()


def _derive(token: str, job: str, number: bytes, session: bytes, coordinator_number: bytes) -> tuple[bytes, bytes]:
    """The coordinator's proof and the session's key, made alike on both sides of all that the opening exchanged."""
    parts = (job.encode(), number, session, coordinator_number)
    return _digest(token.encode(), "coordinator", *parts), _digest(token.encode(), "session", *parts)


class CallerSession:
    """A caller's side of one session; from any thread.

    Raises:
        Unproven: whoever answered does not have the token.
    """

    def __init__(self, token: str, job: str, number: bytes, opening: pb.OpenReply, clock: Callable[[], float]) -> None:
        proof, self._key = _derive(token, job, number, opening.session, opening.number)
        if not hmac.compare_digest(proof, opening.proof):
            raise Unproven("the answer does not show that the coordinator has the job's token")
        self._name = opening.session
        self._clock, self._opened_seconds = clock, clock()
        self._lock = threading.Lock()
        self._calls = 0

    @staticmethod
    def draw() -> bytes:
        """The random number to open a session with."""
        return secrets.token_bytes(RANDOM_BYTES)

    def seal(self, method: str, payload: bytes) -> tuple[int, bytes]:
        """A request's number in this session, and the request as it is sent."""
        with self._lock:
            self._calls += 1
            number = self._calls
        age = int(1000.0 * (self._clock() - self._opened_seconds))
        digest = _digest(self._key, "request", method.encode(), _NUMBERS.pack(number, age), payload)
        return number, payload + _CALL_TAG + _CALL.pack(self._name, number, age, digest)

    def opened(self, method: str, number: int, index: int, data: bytes) -> bytes:
        """An answer (`index` counts several) without its proof.

        Raises:
            Unproven: it is not the coordinator's answer to this request.
        """
        payload, digest = _detach(data, _REPLY_TAG, _DIGEST_BYTES)
        if not hmac.compare_digest(digest, _reply_digest(self._key, method, number, index, payload)):
            raise Unproven("the answer is not the coordinator's")
        return payload

    def is_refusal(self, method: str, number: int, code: str, line: str, proof: bytes) -> bool:
        """Whether it was the coordinator that refused this request, in these words."""
        return hmac.compare_digest(proof, _refusal_digest(self._key, method, number, code, line))


class ReceivedCall:
    """One proven request at the coordinator, and the proofs of its answers."""

    def __init__(self, key: bytes, method: str, number: int, payload: bytes) -> None:
        self._key, self._method, self._number = key, method, number
        self.payload = payload
        self._answers = 0

    def answer(self, payload: bytes) -> bytes:
        """The next answer as it is sent."""
        digest = _reply_digest(self._key, self._method, self._number, self._answers, payload)
        self._answers += 1
        return payload + _REPLY_TAG + digest

    def refusal(self, code: str, line: str) -> bytes:
        """The proof that goes with a refusal."""
        return _refusal_digest(self._key, self._method, self._number, code, line)


@dataclass(slots=True)
class _Session:
    key: bytes = field(repr=False)
    opened_seconds: float
    highest: int = 0
    seen: int = 0
    """Bit i: the request with the number `highest - i` was there."""

    def take(self, number: int) -> bool:
        if number > self.highest:
            self.seen = (self.seen << min(number - self.highest, WINDOW) | 1) & (1 << WINDOW) - 1
            self.highest = number
            return True
        behind = self.highest - number
        if behind >= WINDOW or self.seen >> behind & 1:
            return False
        self.seen |= 1 << behind
        return True


class CoordinatorSessions:
    """All sessions of one coordinator's life; from any thread."""

    def __init__(self, job: str, token: str, clock: Callable[[], float]) -> None:
        self._job, self._token, self._clock = job, token, clock
        self._lock = threading.Lock()
        self._unproven: OrderedDict[bytes, _Session] = OrderedDict()
        self._proven: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, caller_number: bytes) -> pb.OpenReply:
        """Open a session.

        Raises:
            Unproven: that is no random number.
        """
        if len(caller_number) != RANDOM_BYTES:
            raise Unproven(f"a session is opened with a random number of {RANDOM_BYTES} bytes")
        name, number = secrets.token_bytes(RANDOM_BYTES), secrets.token_bytes(RANDOM_BYTES)
        proof, key = _derive(self._token, self._job, caller_number, name, number)
        with self._lock:
            self._unproven[name] = _Session(key, self._clock())
            while len(self._unproven) > MOST_UNPROVEN:
                self._unproven.popitem(last=False)
        return pb.OpenReply(session=name, number=number, proof=proof)

    def take(self, method: str, data: bytes) -> ReceivedCall:
        """A request as it came.

        Raises:
            UnknownSession: of none that is known, or from another time.
            Unproven: it was changed, was there before, or shows nothing.
        """
        payload, tail = _detach(data, _CALL_TAG, _CALL.size)
        name, number, age, digest = _CALL.unpack(tail)
        with self._lock:
            session = self._proven.get(name) or self._unproven.get(name)
        if session is None:
            raise UnknownSession("of a session that is not known")
        expected = _digest(session.key, "request", method.encode(), _NUMBERS.pack(number, age), payload)
        if not hmac.compare_digest(digest, expected):
            raise Unproven("it is not what its sender has sent")
        late = abs(self._clock() - session.opened_seconds - age / 1000.0) > LATEST_SECONDS
        with self._lock:
            if late:
                raise UnknownSession("it comes late")
            if not session.take(number):
                raise Unproven("it was sent before")
            self._unproven.pop(name, None)
            self._proven[name] = session
            self._proven.move_to_end(name)
            while len(self._proven) > _MOST_PROVEN:
                self._proven.popitem(last=False)
        return ReceivedCall(session.key, method, number, payload)


def _reply_digest(key: bytes, method: str, number: int, index: int, payload: bytes) -> bytes:
    return _digest(key, "answer", method.encode(), _NUMBERS.pack(number, index), payload)


def _refusal_digest(key: bytes, method: str, number: int, code: str, line: str) -> bytes:
    return _digest(key, "refusal", method.encode(), _NUMBERS.pack(number, 0), code.encode(), line.encode())
