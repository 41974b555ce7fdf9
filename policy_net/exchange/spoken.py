"""Protocol that something speaks at an address where a learner was expected, found out by asking it.

gRPC says of an HTTP port, a TLS port and a port that nobody has much the same, in words about its own inside. Somebody
has mistaken one port for another, or left out a certificate: which of these it is, two short connections tell.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
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
