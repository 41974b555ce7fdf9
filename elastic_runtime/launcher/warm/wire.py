"""Wire between a launcher and its fork server: JSON messages with a length in front, and descriptors beside them."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("!I")
_MOST_DESCRIPTORS = 8


def send(channel: socket.socket, message: object, descriptors: tuple[int, ...] = ()) -> None:
    """Send a message; the receiver gets descriptors of its own.

    Raises:
        OSError: the other side is gone, or did not take it within the socket's time-out.
    """
    body = json.dumps(message).encode()
    if descriptors:
        socket.send_fds(channel, [_LENGTH.pack(len(body))], descriptors)
    else:
        channel.sendall(_LENGTH.pack(len(body)))
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """The next message, and the descriptors that came with it; they are not inherited by programs.

    Raises:
        EOFError: there are no more.
        OSError: the other side is gone, or said nothing within the socket's time-out.
    """
    head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, _MOST_DESCRIPTORS)
    head += _rest(channel, _LENGTH.size - len(head))
    return json.loads(_rest(channel, _LENGTH.unpack(head)[0])), descriptors


def _rest(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
