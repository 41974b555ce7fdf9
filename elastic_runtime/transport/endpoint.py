"""Data plane of one process: bytes to and from peers, by the shortest way that there is.

On the same host messages go over a Unix socket, and parts that lie in shared memory are read in place; otherwise over
TCP. Which way is taken is found out by trying, for each connection, and the caller sees no difference.

It delivers each message at most once and in order, and never sends one twice. What became of a message is known by its
acknowledgement; what was lost with a connection is told, and what to do about it is the caller's own, idempotent rule.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import zmq

from elastic_runtime.transport.assembly import keep_freed_memory
from elastic_runtime.transport.authentication import CurveKeys, ZapAuthenticator
from elastic_runtime.transport.counters import Counters, EndpointRefusalLog
from elastic_runtime.transport.errors import (
    BadAddress,
    BadMessage,
    Busy,
    PeerUnreachable,
    TransportRefusal,
    UnknownPeer,
)
from elastic_runtime.transport.inbound import Inbound
from elastic_runtime.transport.message import Event, PeerLost, Way
from elastic_runtime.transport.outbound import Link, LinkState
from elastic_runtime.transport.regions import Allocate, Region, RegionPart, allocate_pages
from elastic_runtime.transport.settings import Clock, TransportSettings, check_message, check_name, check_settings
from elastic_runtime.transport.sharing import SharedRegions
from elastic_runtime.transport.sockets import Address, Context, LocalEnd, Socket, host_identity, listen, poll
from elastic_runtime.transport.wire import Acknowledgement

if TYPE_CHECKING:
    from typing_extensions import Self

_PUMP_EVERY_MESSAGES = 16
"""News of connections are looked at so often while messages come without a pause."""
_FRAME_SECONDS = 0.005
"""So long only the next frame is waited for, which is much cheaper; news of connections may be so late."""
_NEVER_SECONDS = 3600.0


class Endpoint:
    """Sends to and receives from peers. One thread uses it, except for `wake`, `allow` and `forbid`.

    Attributes:
        links: the ways to peers for which `connect` was called.
    """

    def __init__(
        self,
        name: str,
        *,
        bind: str,
        job_token: str,
        curve: CurveKeys | None = None,
        advertise: str | None = None,
        shared_memory: bool = True,
        settings: TransportSettings | None = None,
        clock: Clock = time.monotonic,
        allocate: Allocate = allocate_pages,
    ) -> None:
        """Listen.

        Args:
            name: ours, unique in the job, at most 128 bytes of UTF-8.
            bind: such as `tcp://127.0.0.1:0`; port 0 takes a free one.
            job_token: the secret of the job, the same for all its members; never logged, never sent.
            curve: our keys; then all members need them, and whoever connects must be allowed with its key.
            advertise: host name or address that peers use, where it is not the one in `bind`.
            shared_memory: False makes parts travel as frames on the same host too.

        Raises:
            BadMessage: the name is empty or too long, or the settings cut frames that nobody takes.
            BadAddress: the address cannot be bound.
        """
        settings = settings or TransportSettings()
        check_name(name)
        check_settings(settings)
        self.name = name
        self.counters = Counters()
        self._settings, self._clock = settings, clock
        self._allocate = allocate
        if settings.keep_freed_memory:
            keep_freed_memory()
        incarnation = secrets.token_bytes(16)
        shared_memory = shared_memory and settings.local_sockets
        self._local = LocalEnd(
            name, incarnation, job_token, curve, host_identity(), shared_memory, settings, clock, self.counters
        )
        self._context: Context = zmq.Context(io_threads=settings.io_threads)
        self._authenticator = ZapAuthenticator(
            self._context, name, job_token, curve=curve is not None, log=EndpointRefusalLog(name, clock), clock=clock
        )
        self._events: deque[Event] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._since_pump = 0
        self._closed = False
        self.links: dict[str, Link] = {}
        socket = self._context.socket(zmq.ROUTER)
        regions = SharedRegions(self._local) if settings.local_sockets else None
        self.inbound = Inbound(socket, self._local, self._authenticator, regions, self._acknowledged)
        try:
            self.address = listen(socket, self._local, bind, advertise, regions.address if regions else "").text()
        except zmq.ZMQError as error:
            self.close()
            raise BadAddress(f"cannot listen at {bind}: {error.strerror}") from error

    @property
    def incarnation(self) -> str:
        """Ours, as peers see it in `PeerUp`."""
        return self._local.incarnation.hex()

    @property
    def peers(self) -> tuple[str, ...]:
        """Peers that `connect` was called for, connected or not."""
        return tuple(self.links)

    @property
    def refusals(self) -> dict[TransportRefusal, int]:
        """What was not let in, by reason."""
        return self.counters.refusals

    def region(self, name: str, size_bytes: int, *, shared: bool = True, on_demand: bool = False) -> Region:
        """New memory of our own, zero at first; shared with peers on this host where that is possible.

        Memory that is not shared takes no pages before it is written to, and its parts travel as frames. Shared memory
        `on_demand` has only the pages that `Region.reserve` was called for.

        Raises:
            BadMessage: a size below 1.
            OSError: the machine has no memory left.
        """
        if size_bytes < 1:
            raise BadMessage(f"region {name!r} of {size_bytes} bytes")
        shared = shared and self._local.shared_memory
        return Region(name, size_bytes, shared=shared, allocate=self._allocate, on_demand=on_demand)

    def release(self, region: Region) -> None:
        """Let peers unmap `region`, which is not sent any more; the memory goes with the last view on it."""
        for link in self.links.values():
            link.forget(region)
        region.forget_descriptor()

    def allow(self, peer: str, public_key: str | None = None) -> None:
        """Let `peer` connect to us; with CURVE, with this key only. From any thread."""
        check_name(peer)
        self._authenticator.allow(peer, public_key)

    def forbid(self, peer: str) -> None:
        """Take nothing from `peer` any more. From any thread."""
        self._authenticator.forbid(peer)

    def connect(self, peer: str, address: str) -> None:
        """Keep a way to `peer` open, at what its endpoint gave as `address`; returns at once.

        Connecting again to the same address does nothing; to another one drops the connection to the old one.

        Raises:
            BadAddress: it is none, or has no key where we use CURVE.
        """
        check_name(peer)
        parsed = Address.parse(address)
        if self._local.curve is not None and not parsed.public_key:
            raise BadAddress(f"the address of {peer} has no CURVE key; all members of a job use CURVE, or none does")
        link = self.links.get(peer)
        if link is None or link.address != parsed:
            self.disconnect(peer)
            out = self.counters.peer(peer).out
            self.links[peer] = Link(peer, parsed, self._local, self._context, out, self._events)

    def disconnect(self, peer: str) -> None:
        """Give up the way to `peer`, and what is still under way on it; nothing if there is none."""
        link = self.links.pop(peer, None)
        if link is not None:
            link.close()

    def is_up(self, peer: str) -> bool:
        """Whether the way to `peer` stands."""
        return self._link(peer).state is LinkState.UP

    def shares_memory(self, peer: str) -> bool:
        """Whether `peer` reads our shared regions in place."""
        return self._link(peer).shares_memory

    def send(
        self, peer: str, header: bytes, parts: Sequence[RegionPart] = (), *, timeout_seconds: float | None = None
    ) -> int:
        """Hand one message over; the memory of its parts must stay unchanged until the protocol says otherwise.

        Waits only for a connection, or for a peer that has too much in front of it.

        Args:
            parts: of regions of this endpoint; nothing is copied (small parts are).
            timeout_seconds: instead of `send_timeout_seconds`; 0 does not wait.

        Returns:
            The number of the message; it counts what was sent to this peer from 1.

        Raises:
            UnknownPeer: there is no way to it.
            BadMessage: header or parts are larger, or more, than the settings allow.
            Busy: it did not receive enough of what was sent before, in time; nothing was sent.
            PeerUnreachable: it is not connected, in time; nothing was sent.
        """
        link = self._link(peer)
        check_message(header, parts, self._settings)
        self._await_capacity(
            link, parts, self._settings.send_timeout_seconds if timeout_seconds is None else timeout_seconds
        )
        try:
            return link.send(header, parts, self.inbound.receipts.take(peer))
        except zmq.ZMQError as error:
            link.fail(f"the socket does not take a message: {error}")
            raise PeerUnreachable(f"no connection to {peer}: {link.trouble}") from error

    def receive(self, timeout_seconds: float) -> Event | None:
        """The next message, or news of a peer; None after the time, or after `wake`.

        Taking the next message acknowledges the one before it; if both are small, a little later.
        """
        deadline = self._clock() + timeout_seconds
        expired = False
        receipts = self.inbound.receipts
        receipts.report_much()
        while True:
            self._since_pump += 1
            if self._since_pump >= _PUMP_EVERY_MESSAGES:
                self._pump()
            event = self._events.popleft() if self._events else self.inbound.take()
            if isinstance(event, PeerLost) and event.way is Way.OUT:
                receipts.repeat(event.peer)
            if event is not None:
                return event
            if expired:
                return None
            receipts.report_all()
            left = deadline - self._clock()
            is_holding = any(link.is_holding for link in self.links.values())
            if left > 0.0 and not is_holding and self._wait_for_frame(min(left, _FRAME_SECONDS)):
                continue
            expired = left <= 0.0
            if self._wait(left):
                self._pump()
                if self._woken():
                    return None

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the peers have received everything that was sent; whether they did."""
        deadline = self._clock() + timeout_seconds
        while True:
            for link in self.links.values():
                link.pump()
            waiting = [link for link in self.links.values() if link.unacknowledged]
            left = deadline - self._clock()
            if not waiting or left <= 0.0:
                return not waiting
            poll([pollable for link in waiting for pollable in link.pollables()], left)

    def wake(self) -> None:
        """Make `receive` return None soon, once; from any thread."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Drop all connections; what is under way is lost, see `flush`."""
        if self._closed:
            return
        self._closed = True
        for peer in self.peers:
            self.disconnect(peer)
        self.inbound.close()
        self._authenticator.close()
        self._context.term()
        os.close(self._wake)

    def _link(self, peer: str) -> Link:
        try:
            return self.links[peer]
        except KeyError:
            raise UnknownPeer(f"{self.name} has no way to {peer!r}; call connect first") from None

    def _acknowledged(self, peer: str, received: Acknowledgement) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.acknowledge(received)

    def _await_capacity(self, link: Link, parts: Sequence[RegionPart], timeout_seconds: float) -> None:
        """Wait until a message with `parts` can be sent; see `send` for the errors."""
        if link.state is LinkState.UP and link.has_capacity_for(parts):
            return
        started = self._clock()
        try:
            while True:
                link.pump()
                up = link.state is LinkState.UP
                if up and link.has_capacity_for(parts):
                    return
                left = started + timeout_seconds - self._clock()
                if left <= 0.0 and up:
                    raise Busy(f"{link.peer} has {len(link.unacknowledged)} messages that it did not receive yet")
                if left <= 0.0:
                    raise PeerUnreachable(f"no connection to {link.peer}: {link.trouble}")
                poll(link.pollables(), min(left, link.seconds_to_next_step()))
        finally:
            self.counters.peer(link.peer).out.wait_seconds += self._clock() - started

    def _pump(self) -> None:
        self._since_pump = 0
        self.inbound.receipts.report_all()
        self.inbound.pump()
        for link in self.links.values():
            link.pump()

    def _wait_for_frame(self, seconds: float) -> bool:
        """Whether a frame comes in time, and nothing else that cannot wait."""
        ready = poll([self.inbound.socket, self._wake], seconds)
        return len(ready) == 1 and self.inbound.socket in ready

    def _wait(self, left_seconds: float) -> bool:
        """Wait until something comes; whether it is more than a frame."""
        pollables: list[Socket | int] = [*self.inbound.pollables(), self._wake]
        for link in self.links.values():
            pollables += link.pollables()
        next_seconds = min((link.seconds_to_next_step() for link in self.links.values()), default=_NEVER_SECONDS)
        ready = poll(pollables, min(left_seconds, next_seconds))
        return len(ready) != 1 or self.inbound.socket not in ready

    def _woken(self) -> bool:
        try:
            return os.eventfd_read(self._wake) > 0
        except BlockingIOError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
