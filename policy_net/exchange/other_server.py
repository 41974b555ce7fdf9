"""Other server at an address where the learner was expected: what it speaks, and which setting of the caller to mend.

gRPC says of an HTTP port, a TLS port and a port that nobody has much the same. Which of these was mistaken for another,
or whether a certificate was left out, two short connections tell. They are made at most once a minute: retries come
every few seconds, from several threads.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from foundation.text import plain_line

NO_CONNECTION = ("failed to connect", "DNS resolution", "Socket closed", "recvmsg", "Connection reset", "GOAWAY")
"""Beginnings of what gRPC says where no call has reached a server; all else is the server's own words."""
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_HTTP_ANSWER = b"HTTP/1."
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF", "PACKET_LENGTH", "HTTP_REQUEST")
"""What OpenSSL calls an answer that is no TLS; whatever else it says is said by TLS."""
_TLS_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is signed by another authority",
    "ostname": "its certificate is of another host",
    "Peer name": "its certificate is of another host",
}
"""Words of gRPC's about a handshake that failed, and what they mean."""
_KEPT_SECONDS = 60.0
_LONGEST_POLL_SECONDS = 5.0
"""Who has not said by then what it speaks counts as silent; a thread of the agent's that asks the learner waits."""
_REFUSED = "Connection refused"
"""What gRPC says where nobody listens: the usual outage, in which a whole fleet need not knock once more."""

_BROKEN = {"INTERNAL", "UNKNOWN", "CANCELLED"}
"""What gRPC says where a call ended amid its answer; no learner answers with one of these."""


class Spoken(StrEnum):
    """What is at an address."""

    NO_HOST = "no host has that name"
    NOBODY = "nobody listens there"
    SILENT = "somebody listens there, and does not answer"
    HTTP = "what listens there speaks HTTP, as a learner's page (telemetry.http_listen) does"
    HTTPS = "what listens there speaks HTTPS"
    TLS = "what listens there speaks TLS"
    OPEN_TLS = (
        "what listens there speaks TLS and asks for no certificate, as a learner's enrollment port"
        " (identity.enroll_port) does"
    )
    PLAIN = "what listens there speaks no TLS"


def spoken_at(host: str, port: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> Spoken:
    """Ask what is there, for `patience_seconds` at most; nothing is sent that a server would act on."""
    deadline = clock() + patience_seconds

    def connected() -> socket.socket:
        left = deadline - clock()
        if left <= 0.0:
            raise TimeoutError
        return socket.create_connection((host, port), timeout=left)

    try:
        with connected() as connection:
            by_tls = _by_tls(connection)
    except socket.gaierror:
        return Spoken.NO_HOST
    except OSError:
        return Spoken.NOBODY
    if by_tls is not None:
        return by_tls
    try:
        with connected() as connection:
            connection.sendall(_HTTP_REQUEST)
            answer = connection.recv(len(_HTTP_ANSWER))
    except TimeoutError:
        return Spoken.SILENT
    except OSError:
        return Spoken.PLAIN  # it hung up on what it does not understand
    return Spoken.HTTP if answer == _HTTP_ANSWER else Spoken.PLAIN


def _by_tls(connection: socket.socket) -> Spoken | None:
    """What is spoken over TLS there; None if no TLS is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is told to it: only that it speaks TLS is of interest
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection) as secure:
            if secure.selected_alpn_protocol() != "h2":
                return Spoken.HTTPS
            return Spoken.OPEN_TLS if _begins(secure) else Spoken.TLS
    except ssl.SSLError as error:
        no_tls = isinstance(error, ssl.SSLEOFError) or any(word in (error.reason or "") for word in _NOT_TLS)
        return None if no_tls else Spoken.TLS
    except OSError:  # silence, or a hang-up amid the greeting
        return None


def _begins(secure: ssl.SSLSocket) -> bool:
    """Whether a server goes on after the greeting; one that wants a certificate hangs up then, as none was shown."""
    try:
        return bool(secure.recv(1))
    except OSError:
        return False


def handshake_reason(details: str) -> str:
    """The part of gRPC's words about a handshake that a person can use."""
    known = [meaning for word, meaning in _TLS_REASONS.items() if word in details]
    return known[0] if known else plain_line(details, 200)


@dataclass(frozen=True)
class CallerWords:
    """Settings of the program that calls, as its lines name them.

    Attributes:
        section: of its settings, in which the connection is described.
        enroll: what to do where its port of enrollments is another.
        uncertified: what to do where TLS is spoken, and was not tried.
        other_certificates: what to do where its certificates are not taken.
        plain: what to do where no TLS is spoken, and it was tried.
    """

    section: str
    learner: str
    caller: str
    enroll: str
    uncertified: str
    other_certificates: str
    plain: str

    @property
    def address(self) -> str:
        """The setting that says where."""
        return f"{self.section}.address"

    @property
    def listen(self) -> str:
        """What to do where the address is another port's."""
        return f"set {self.address} to the HOST:PORT of a learner's `listen`"

    def remedy(self, found: Spoken, call: str, *, certified: bool) -> str:
        """What to do about what is there; empty where the learner is what is missing."""
        if found in (Spoken.HTTP, Spoken.HTTPS):
            return self.enroll if call == _ENROLL else self.listen
        if found is Spoken.OPEN_TLS:
            return f"{self.listen}; if it is that, {self.uncertified}"
        if found is Spoken.NO_HOST:
            return f"see to the name in {self.address}"
        if found is Spoken.TLS:
            return self.other_certificates if certified else self.uncertified
        return self.plain if found is Spoken.PLAIN and certified else ""


_ENROLL = "Enroll"
_OF_OTHER_PORTS = {
    "Register": "takes no clusters, as a learner's enrollment port (identity.enroll_port) does",
    _ENROLL: "enrolls nobody, as a learner's `listen` does",
}
"""By a call that every learner knows, what a port is that does not know it."""


class OtherServers:
    """What is said of addresses at which no learner answers; safe to use from several threads.

    Args:
        patience_seconds: of calls to the learner.
    """

    def __init__(
        self, words: CallerWords, patience_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._words = words
        self._call_seconds = patience_seconds
        self._patience_seconds = min(patience_seconds, _LONGEST_POLL_SECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, Spoken]] = {}

    def explained(self, call: str, code: str, details: str, address: str, certified: bool) -> str:
        """Why a call met no learner, and what to do; empty where a learner answered, or too late.

        Args:
            code: gRPC's word for its end.
            details: what gRPC, or the learner, said.
            address: HOST:PORT that was called, IPv6 in brackets.
        """
        words = self._words
        if code == "UNIMPLEMENTED" and call in _OF_OTHER_PORTS:
            mend = words.enroll if call == _ENROLL else words.listen
            return f"what listens at {address} {_OF_OTHER_PORTS[call]}; {mend}"
        if code == "DEADLINE_EXCEEDED":
            return f"the {words.learner} at {address} gave no answer within {self._call_seconds:g} s"
        if code in _BROKEN:
            return f"no {words.learner} answers at {address}: the connection broke off"
        if code != "UNAVAILABLE" or not details.startswith(NO_CONNECTION):
            return ""
        found = Spoken.NOBODY if _REFUSED in details else self._spoken(address)
        if found is Spoken.OPEN_TLS and certified:  # it is its certificate that was not taken
            found = Spoken.TLS
        message = f"no {words.learner} answers at {address}: {found}"
        if found is Spoken.TLS and certified:
            message += f", but not with these certificates ({handshake_reason(details)})"
        elif found is Spoken.PLAIN and not certified:  # as learners do that end amid a call
            return f"no {words.learner} answers at {address}: the connection broke off"
        remedy = words.remedy(found, call, certified=certified)
        return f"{message}; {remedy}" if remedy else message

    def _spoken(self, address: str) -> Spoken:
        with self._lock:
            until, found = self._found.get(address, (-1.0, Spoken.NOBODY))
        if self._clock() < until:
            return found
        host, _, port = address.rpartition(":")
        found = spoken_at(host.strip("[]"), int(port), self._patience_seconds)
        with self._lock:
            self._found[address] = (self._clock() + _KEPT_SECONDS, found)
        return found
