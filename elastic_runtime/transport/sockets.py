"""Sockets of one endpoint: the address on which peers reach it, the socket that listens there, and those that dial.

An address is given to peers by the control plane, as one line of JSON.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from elastic_runtime.transport.authentication import DOMAIN, CurveKeys, prove
from elastic_runtime.transport.counters import Counters
from elastic_runtime.transport.errors import BadAddress
from elastic_runtime.transport.settings import Clock, TransportSettings
from elastic_runtime.transport.wire import MOST_FRAME_BYTES
from foundation.text import parse_json

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
NOT_WAITING = int(zmq.NOBLOCK)
_READABLE = int(zmq.POLLIN)
_MOST_ANSWER_BYTES = 1024
_KEY = re.compile(r"(?:[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40})?")
"""Z85 of 32 bytes, or nothing."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

FAILURES = {
    zmq.EVENT_DISCONNECTED: "the connection ended",
    zmq.EVENT_CLOSED: "nobody answers at its address",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it refused us: wrong token or key, or our name is not allowed there",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it speaks another protocol, or its key is not the one in its address",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it closed the connection before it was made",
}


@dataclass(frozen=True, slots=True)
class Address:
    """All the ways to one endpoint; a way that it lacks is empty.

    Attributes:
        tcp: for ZeroMQ, such as `tcp://10.0.0.7:41000`.
        ipc: abstract Unix socket for ZeroMQ.
        share: abstract Unix socket on which regions are handed over.
        host: boot identity of the host, only a hint: what counts is whether the sockets above answer.
    """

    tcp: str
    ipc: str
    share: str
    host: str
    public_key: str

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what `text` wrote.

        Raises:
            BadAddress: it is something else.
        """
        try:
            fields = parse_json(text)
        except ValueError as error:
            raise BadAddress(f"not the address of a data endpoint: {text[:200]!r}") from error
        if (
            not isinstance(fields, dict)
            or set(fields) != set(cls.__slots__)
            or not all(isinstance(value, str) for value in fields.values())
            or not fields["tcp"].startswith("tcp://")
            or not _KEY.fullmatch(fields["public_key"])
        ):
            raise BadAddress(f"not the address of a data endpoint: {text[:200]!r}")
        return cls(**fields)


def host_identity() -> str:
    """The host's, which changes with every boot and differs between machines; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """Our end of all connections: what one endpoint is, for all that act in its name.

    Attributes:
        incarnation: 16 random bytes; another process, or another endpoint, has others.
    """

    name: str
    incarnation: bytes
    token: str = field(repr=False)
    curve: CurveKeys | None
    host: str
    shared_memory: bool
    settings: TransportSettings
    clock: Clock
    counters: Counters

    def set_options(self, socket: Socket, most_bytes: int) -> None:
        """What all sockets of ours have in common; frames above `most_bytes` end the connection."""
        settings = self.settings
        socket.linger = 0
        socket.sndhwm = settings.max_queued_frames
        socket.rcvhwm = settings.max_queued_frames
        socket.maxmsgsize = most_bytes
        socket.handshake_ivl = _milliseconds(settings.handshake_seconds)
        socket.heartbeat_ivl = _milliseconds(settings.heartbeat_seconds)
        socket.heartbeat_timeout = _milliseconds(settings.heartbeat_timeout_seconds)
        socket.heartbeat_ttl = _milliseconds(settings.heartbeat_timeout_seconds)
        socket.tcp_keepalive = 1
        socket.tcp_keepalive_idle = max(1, round(settings.heartbeat_timeout_seconds))


def listen(socket: Socket, local: LocalEnd, bind: str, advertise: str | None, share: str) -> Address:
    """Bind `socket` (a ROUTER) at `bind`, and on a Unix socket if there is one to hand over regions (`share`).

    Raises:
        zmq.ZMQError: the address cannot be bound.
    """
    local.set_options(socket, MOST_FRAME_BYTES)
    socket.router_mandatory = True
    socket.zap_domain = DOMAIN
    if local.curve is not None:
        socket.curve_server = True
        socket.curve_secretkey = local.curve.secret.encode()
    else:
        socket.plain_server = True
    socket.bind(bind)
    tcp = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    if advertise is not None:
        tcp = f"tcp://{advertise}:{urlsplit(tcp).port}"
    ipc = ""
    if share:
        ipc = f"ipc://@fedl2-data-{secrets.token_hex(16)}"
        socket.bind(ipc)
    return Address(tcp, ipc, share, local.host, local.curve.public if local.curve is not None else "")


def dial(context: Context, local: LocalEnd, peer: str, public_key: str, link: bytes) -> tuple[Socket, Socket]:
    """The connection's socket, not connected yet, and the one that tells what becomes of it."""
    socket = context.socket(zmq.DEALER)
    local.set_options(socket, _MOST_ANSWER_BYTES)
    socket.routing_id = b"L" + link
    socket.reconnect_ivl = -1
    if local.curve is not None:
        socket.curve_publickey = local.curve.public.encode()
        socket.curve_secretkey = local.curve.secret.encode()
        socket.curve_serverkey = public_key.encode()
    else:
        socket.plain_username = local.name.encode()
        socket.plain_password = prove(local.token, local.name, peer).encode()
    return socket, socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(FAILURES))


def is_readable(socket: Socket) -> bool:
    """Whether a message is there; ten times cheaper than to try and be told by an exception."""
    return bool(int(socket.get(zmq.EVENTS)) & _READABLE)


def poll(pollables: Sequence[Socket | int], seconds: float) -> dict[Socket | int, int]:
    """Wait until some are readable; which."""
    return dict(zmq.zmq_poll([(pollable, zmq.POLLIN) for pollable in pollables], math.ceil(1000.0 * max(0.0, seconds))))


def _milliseconds(seconds: float) -> int:
    return max(1, round(1000 * seconds))
