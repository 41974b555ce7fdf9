"""What an endpoint is: handed to all that act in its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from elastic_runtime.transport.keys import CurveKeys
from elastic_runtime.transport.settings import TransportSettings

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
NOT_WAITING = int(zmq.NOBLOCK)
_READABLE = int(zmq.POLLIN)
Clock = Callable[[], float]
"""Seconds, from anywhere, never back."""


@dataclass(frozen=True, slots=True)
class Own:
    """Of one endpoint."""

    name: str
    incarnation: bytes
    """16 random bytes; another process, or another endpoint, has others."""
    token: str = field(repr=False)
    curve: CurveKeys | None
    host: str
    """`host_identity`."""
    shared_memory: bool
    settings: TransportSettings
    clock: Clock

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


def is_readable(socket: Socket) -> bool:
    """Whether a message is there; ten times cheaper than to try and be told by an exception."""
    return bool(int(socket.get(zmq.EVENTS)) & _READABLE)


def _milliseconds(seconds: float) -> int:
    return max(1, round(1000 * seconds))
