"""Addresses and credentials of a job's coordinator: who talks to it has the job's token, and TLS where others listen.

An address is written as gRPC reads it: a host and a port, or, where all of a job is on one machine, `unix:` and a
socket's path in the form that URIs have.

The token is a line in a file, made for one job; it is shown by digests and never sent (`sessions.py`). Without TLS a
coordinator serves on a Unix socket or on loopback only, and members connect to these only, unless that is allowed by
name (a network that is closed).
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from elastic_runtime.control.checks import MOST_MESSAGE_BYTES, check_host_and_port
from elastic_runtime.errors import BadInput
from foundation.files import PRIVATE
from foundation.followed_files import Content, FollowedFiles
from foundation.text import plain_line

if TYPE_CHECKING:  # who only looks at a job's files, or refuses what was typed, waits for no gRPC
    import grpc

_UNIX = "unix:"
_ABSTRACT = "unix-abstract:"
"""A socket without a file, which every user of this machine reaches; a coordinator's own, behind a port."""
_SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 4096
_SHOWN_OF_A_PATH = 200
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    # A cut network shows in no packet: both sides ask for a sign of life.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second coordinator on a port is an error, not a rival
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2000),
]
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    # A coordinator that restarts is back within seconds; the default waits two minutes before it looks again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long a connection may take to be made: a coordinator that waits for a processor is not gone.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A job's control never goes through a proxy that the environment names for other traffic.
    ("grpc.enable_http_proxy", 0),
]


def check_coordinator(address: str) -> str:
    """An address of a coordinator, `host:port` or a Unix socket on this machine.

    Raises:
        BadInput: it is neither.
    """
    if not address.startswith(_UNIX):
        return check_host_and_port(address)
    path = path_of_socket(address)
    if path is None or not path.is_absolute() or socket_address(path) != address:
        raise BadInput(f"{address[:200]!r} is no address; give host:port, or unix: and a socket's whole path")
    return address


def socket_address(path: Path) -> str:
    """Address of a coordinator on a Unix socket."""
    return _UNIX + quote(str(path))


def path_of_socket(address: str) -> Path | None:
    """The Unix socket of an address; None if it is of another kind."""
    return Path(unquote(address.removeprefix(_UNIX))) if address.startswith(_UNIX) else None


def is_loopback(address: str) -> bool:
    """Whether an address reaches this machine only."""
    if path_of_socket(address) is not None or address.startswith(_ABSTRACT):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a member or tool shows to the coordinator, and how it knows the coordinator.

    Attributes:
        ca_pem: certificates (PEM) that the coordinator's has to be signed by; None: no TLS.
        ca: the same certificates as a file that is followed, in place of `ca_pem`.
    """

    token: str = field(repr=False)
    ca_pem: bytes | None = None
    insecure_allowed: bool = False
    ca: FollowedFiles[bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def trusted(self) -> bytes | None:
        """The certificates (PEM) that the coordinator's has to be signed by, as their file is now; None: no TLS."""
        return self.ca_pem if self.ca is None else self.ca.current()


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """What the coordinator asks for, and the certificate and key (PEM) that it serves with; None: no TLS."""

    token: str = field(repr=False)
    insecure_allowed: bool = False
    pair: FollowedFiles[tuple[bytes, bytes]] | None = field(default=None, repr=False, compare=False)


def read_token(path: Path, content: Content = Path.read_bytes) -> str:
    """The token in a file's first line.

    Raises:
        BadInput: the file cannot be read or holds none.
    """
    try:
        token = content(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the token file {_shown(path)} cannot be read: {_reason(error)}") from error
    if not (_SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN and token.isprintable() and " " not in token):
        raise BadInput(f"{_shown(path)} holds no token: one line of {_SHORTEST_TOKEN} or more letters and digits")
    return token


def read_pem(path: Path, what: str, content: Content = Path.read_bytes) -> bytes:
    """A file of certificates or a key.

    Raises:
        BadInput: it cannot be read or is not PEM.
    """
    try:
        pem = content(path)
    except OSError as error:
        raise BadInput(f"the {what} {_shown(path)} cannot be read: {_reason(error)}") from error
    if b"-----BEGIN " not in pem:
        raise BadInput(f"the {what} {_shown(path)} is not in PEM format")
    return pem


def read_ca(path: Path, content: Content = Path.read_bytes) -> bytes:
    """A file of certificates that others are checked against.

    gRPC takes any file, and then no certificate: its calls fail as if nobody answered.

    Raises:
        BadInput: it cannot be read or holds no certificates.
    """
    pem = read_pem(path, "CA file", content)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(f"the CA file {_shown(path)} holds no certificates that can be read") from error
    return pem


def follow_ca(path: Path, clock: Callable[[], float] = time.monotonic) -> FollowedFiles[bytes]:
    """The same file, read again when it changes; where it cannot be used, the certificates before are trusted.

    Raises:
        BadInput: at the start: as `read_ca`.
    """
    return FollowedFiles(lambda content: read_ca(path, content), BadInput, on_refused=_report_refused, clock=clock)


def follow_pair(
    certificate: Path, key: Path, clock: Callable[[], float] = time.monotonic
) -> FollowedFiles[tuple[bytes, bytes]]:
    """A certificate and its key, read again when they change; where they cannot be used, those before serve on.

    Raises:
        BadInput: at the start: one cannot be read, or they do not belong together.
    """

    def make(content: Content) -> tuple[bytes, bytes]:
        pair = read_pem(certificate, "certificate", content), read_pem(key, "key", content)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadInput(f"{_shown(certificate)} and {_shown(key)} are no certificate and its key") from error
        return pair

    return FollowedFiles(make, BadInput, on_refused=_report_refused, clock=clock)


def open_channel(address: str, credentials: ClientCredentials) -> grpc.Channel:
    """A channel to a coordinator; nothing is sent yet.

    Raises:
        BadInput: TLS would be needed for this address.
    """
    import grpc  # noqa: PLC0415

    trusted = credentials.trusted
    if trusted is not None:
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), CHANNEL_OPTIONS)
    if not (credentials.insecure_allowed or is_loopback(address)):
        raise BadInput(f"{address} is not on this machine: give the coordinator's CA file, or allow insecure control")
    return grpc.insecure_channel(address, CHANNEL_OPTIONS)


def bind(server: grpc.Server, address: str, credentials: ServerCredentials) -> int:
    """Bind a server and return its port; of a Unix socket, 1.

    Raises:
        BadInput: the address is taken or cannot be bound, or TLS would be needed; or others may enter the socket's
            folder.
    """
    path = path_of_socket(address)
    if path is not None:
        _check_closed(path.parent)
    try:
        if credentials.pair is not None:
            return server.add_secure_port(address, _followed_credentials(credentials.pair.current))
        if not (credentials.insecure_allowed or is_loopback(address)):
            raise BadInput(f"{address} is not loopback: give a certificate and key, or allow insecure control")
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadInput(f"cannot serve on {address}: it is taken, or not an address of this machine") from error
    if path is not None:
        path.chmod(PRIVATE)
    return port


def _followed_credentials(current: Callable[[], tuple[bytes, bytes]]) -> grpc.ServerCredentials:
    """Credentials whose certificate is read anew for each handshake."""
    import grpc  # noqa: PLC0415

    given = current()

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        found = current()
        if found == given:
            return None  # as before
        given = found
        return grpc.ssl_server_certificate_configuration([found[::-1]])

    first = grpc.ssl_server_certificate_configuration([given[::-1]])
    # gRPC takes None for "as before"; its types do not say so.
    return grpc.dynamic_ssl_server_credentials(first, newer)  # type: ignore[arg-type]


def no_password() -> str:
    """Password of a key: none, as the process that starts jobs cannot be asked for one."""
    raise ValueError("it has a password")


def _report_refused(reason: str) -> None:
    import structlog  # noqa: PLC0415  (seldom told)

    structlog.get_logger().error("certificate-not-replaced", reason=reason, meaning="the one before serves on")


def _check_closed(folder: Path) -> None:
    """See that nobody else can put a socket of his own in the place of one that is away."""
    try:
        found = folder.stat()
    except OSError as error:
        raise BadInput(f"{_shown(folder)}: cannot be the folder of a socket ({error.strerror})") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise BadInput(f"{_shown(folder)}: others can enter the socket's folder; make it yours alone (chmod 700)")


def _shown(path: Path) -> str:
    return plain_line(str(path), _SHOWN_OF_A_PATH)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it holds other letters than a token's"
