"""Passing on of connections from a listening socket that outlives its coordinator to the coordinator's own server.

gRPC cannot take over a socket that listens already. So the launcher listens, and keeps listening while a coordinator is
away: the port is never anybody else's, and who connects meanwhile waits for the next coordinator. The coordinator is
given that socket; its server has an abstract Unix socket with a random name, and all bytes go between the two here,
as they are, also TLS's.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass, field

import structlog

_log = structlog.get_logger()
_CHUNK_BYTES = 64 * 1024
_MOST_CONNECTIONS = 2048
"""Of both sides together; a job has some hundred members. More wait in the system's queue."""


@dataclass(slots=True, eq=False)
class _End:
    socket: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    """What it is to be sent."""
    ended: bool = False
    """It sends nothing more."""
    other: _End = field(init=False)


class ConnectionForwarder:
    """Runs in a thread of its own until it is closed.

    Args:
        descriptor: of the listening socket, which is the caller's to close.
    """

    def __init__(self, descriptor: int, target: str) -> None:
        self._target = f"\0{target}"
        self._listener = socket.socket(fileno=descriptor)
        self._listener.setblocking(False)
        self._ends: set[_End] = set()
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closed = False
        self._listening = False
        self._thread = threading.Thread(target=self._run, name="passing on", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections; the listening socket goes on listening for others that have it."""
        self._closed = True
        self._wake.send(b"\0")
        self._thread.join()
        for end in list(self._ends):
            end.socket.close()
        for one in (self._selector, self._woken, self._wake):
            one.close()
        self._listener.detach()

    def _run(self) -> None:
        while not self._closed:
            self._listen(len(self._ends) < _MOST_CONNECTIONS)
            for key, events in self._selector.select():
                end = key.data
                if key.fileobj is self._listener:
                    self._accept()
                elif end is not None and end in self._ends:
                    try:
                        self._move(end, events)
                    except OSError:
                        self._drop(end)

    def _listen(self, listens: bool) -> None:
        if listens and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._listening and not listens:
            self._selector.unregister(self._listener)
        self._listening = listens

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except BlockingIOError:
            return  # who was there has gone
        except OSError as error:
            _log.warning("connection-not-taken", error=str(error))
            return
        far = socket.socket(socket.AF_UNIX)
        for each in (near, far):
            each.setblocking(False)
        try:
            far.connect(self._target)
        except OSError:
            near.close()
            far.close()
            return
        with contextlib.suppress(OSError):  # of a connection that has ended already
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one, other = _End(near), _End(far)
        one.other, other.other = other, one
        for end in (one, other):
            self._ends.add(end)
            self._selector.register(end.socket, selectors.EVENT_READ, end)

    def _move(self, end: _End, events: int) -> None:
        if events & selectors.EVENT_READ:
            data = end.socket.recv(_CHUNK_BYTES)
            end.ended = not data
            end.other.waiting += data
        for one in (end, end.other):
            self._send(one)
            if one.other.ended and not one.waiting:
                with contextlib.suppress(OSError):
                    one.socket.shutdown(socket.SHUT_WR)
        if end.ended and end.other.ended and not (end.waiting or end.other.waiting):
            self._drop(end)
            return
        for one in (end, end.other):
            self._poll_one(one)

    @staticmethod
    def _send(end: _End) -> None:
        if end.waiting:
            with contextlib.suppress(BlockingIOError):
                del end.waiting[: end.socket.send(end.waiting)]

    def _poll_one(self, end: _End) -> None:
        """Read while the other side takes it, write while there is something."""
        reads = not end.ended and len(end.other.waiting) < _CHUNK_BYTES
        events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * bool(end.waiting)
        registered = end.socket.fileno() in self._selector.get_map()
        if events and registered:
            self._selector.modify(end.socket, events, end)
        elif events:
            self._selector.register(end.socket, events, end)
        elif registered:
            self._selector.unregister(end.socket)

    def _drop(self, end: _End) -> None:
        for one in (end, end.other):
            self._ends.discard(one)
            with contextlib.suppress(KeyError):
                self._selector.unregister(one.socket)
            one.socket.close()
