"""Guard of connections: while they are many, those go that never made a call, of the address that has most of them.

gRPC counts all connections alike and closes every new one beyond its limit, an honest agent's as well. It hands none of
them to Python; but they are this process's own files, and what a file is tells the system. Linux only: elsewhere there
is the limit alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import structlog

_log = structlog.get_logger()

POLL_SECONDS = 0.5
_FILES = Path("/proc/self/fd")
_CROWDED, _ENOUGH = 0.75, 0.5
"""Shares of the connections that there is room for: from when on some are closed, and down to how many."""

Peer = tuple[str, int]
"""The other end of a connection: address and port."""


class ConnectionGuard:
    """Watches the connections of one listening port, of which gRPC lets in `most`; for one event loop.

    With `callers_stay`, one that has made a call is kept; not where anybody may make one.
    """

    def __init__(self, most: int, *, callers_stay: bool = True) -> None:
        self._most = most
        self._callers_stay = callers_stay
        self._callers: set[Peer] = set()
        self._seen: dict[Peer, None] = {}
        self._others: dict[int, tuple[int, int]] = {}
        """Files that were something else when last looked at: number, and device and inode."""

    def on_call(self, peer: str) -> None:
        """A connection (as gRPC names it) is a caller's, who may be told apart by more than an address."""
        if self._callers_stay and len(self._callers) < 2 * self._most:
            self._callers.add(_host_and_port(peer))

    async def watch(self, port: int) -> None:
        """Look again and again; 0 is no port."""
        while port and _FILES.exists():
            await asyncio.sleep(POLL_SECONDS)
            if len(_files()) >= _CROWDED * self._most or len(self._callers) >= self._most:
                self.poll(port)

    def poll(self, port: int) -> int:
        """Close what is too much among the connections of a port; how many."""
        found = self._connections(port)
        self._callers.intersection_update(found)
        self._seen = {peer: None for peer in (*self._seen, *found) if peer in found}
        if len(found) < _CROWDED * self._most:
            return 0
        chosen = self._chosen(len(found) - round(_ENOUGH * self._most))
        closed = sum(_close(port, found[peer], peer) for peer in chosen)
        if closed:
            _log.warning("connections-closed", connections=closed, reason="too many that make no call")
        return closed

    def _connections(self, port: int) -> dict[Peer, int]:
        """This process's connections at a port: each one's peer, and its file's number.

        Files that are none of them are asked once: most may be connections at the other port.
        """
        found: dict[Peer, int] = {}
        others: dict[int, tuple[int, int]] = {}
        for file in _files():
            which = _device_and_inode(file)
            if which is None:
                continue
            if self._others.get(file) != which:
                with _copy(file) as copy:
                    peer = _peer(copy, port)
                if peer is not None:
                    found[peer] = file
                    continue
            others[file] = which
        self._others = others
        return found

    def _chosen(self, excess: int) -> list[Peer]:
        """The oldest silent connections, each of the address that has most of them left."""
        silent: dict[str, list[Peer]] = defaultdict(list)
        for peer in self._seen:
            if peer not in self._callers:
                silent[peer[0]].append(peer)
        left = Counter({address: len(peers) for address, peers in silent.items()})
        chosen: list[Peer] = []
        while len(chosen) < excess and left.total():
            (address, most), *others = left.most_common(2)
            step = min(excess - len(chosen), most - (others[0][1] if others else 0) or 1)
            begun = len(silent[address]) - most
            chosen += silent[address][begun : begun + step]
            left[address] -= step
        return chosen


def _files() -> list[int]:
    """The numbers of this process's open files; that of this look at them is among them."""
    with os.scandir(_FILES) as entries:
        return [int(entry.name) for entry in entries]


def _device_and_inode(file: int) -> tuple[int, int] | None:
    try:
        known = os.fstat(file)
    except OSError:  # it has just gone
        return None
    return known.st_dev, known.st_ino


def _close(port: int, file: int, peer: Peer) -> bool:
    """End a connection, if the file is still this one; what a copy is cannot change meanwhile."""
    with _copy(file) as copy:
        if copy is None or _peer(copy, port) != peer:
            return False
        with contextlib.suppress(OSError):  # it may just have gone by itself
            copy.shutdown(socket.SHUT_RDWR)
        return True


@contextlib.contextmanager
def _copy(file: int) -> Iterator[socket.socket | None]:
    """A second handle of a file, for a moment, if it is a socket."""
    with contextlib.ExitStack() as stack:
        try:
            own = os.dup(file)
        except OSError:
            yield None
            return
        stack.callback(os.close, own)
        if not stat.S_ISSOCK(os.fstat(own).st_mode):
            yield None
            return
        copy = socket.socket(fileno=own)
        stack.callback(copy.detach)
        yield copy


def _peer(connection: socket.socket | None, port: int) -> Peer | None:
    """The other end of a connection at a port of this machine's; None for whatever else it is."""
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if connection.getsockname()[1] != port:
            return None
        address, remote = connection.getpeername()[:2]
    except OSError:  # it listens, or has just gone
        return None
    return address.removeprefix("::ffff:"), remote


@functools.lru_cache(maxsize=4096)  # a connection makes many calls
def _host_and_port(peer: str) -> Peer:
    """Of `ipv4:10.0.0.7:51234` or `ipv6:[::1]:51234`, escaped or not; the port 0 where there is none."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdecimal() else 0
