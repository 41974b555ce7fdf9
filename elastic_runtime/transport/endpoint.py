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
from typing import Self

import zmq

from elastic_runtime.transport.assembly import keep_freed_memory
from elastic_runtime.transport.authentication import CurveKeys, ZapAuthenticator
from elastic_runtime.transport.counters import Counters, EndpointRefusalLog
from elastic_runtime.transport.errors import BadAddress, BadMessage, PeerUnreachable, TransportRefusal
from elastic_runtime.transport.inbound import Inbound
from elastic_runtime.transport.links import Links
from elastic_runtime.transport.message import Event, PeerLost, Place, Way
from elastic_runtime.transport.outbound import LinkState
from elastic_runtime.transport.regions import Allocate, Region, RegionPart, allocate_pages
from elastic_runtime.transport.settings import Clock, TransportSettings, check_message, check_name, check_settings
from elastic_runtime.transport.sharing import SharedRegions
from elastic_runtime.transport.sockets import Address, Context, LocalEnd, host_identity, listen, poll

_PUMP_EVERY_MESSAGES = 16
"""News of connections are looked at so often while messages come without a pause."""
_FRAME_SECONDS = 0.005
"""So long only the next frame is waited for, which is much cheaper; news of connections may be so late."""


class Reception:
    """Of one endpoint. One thread uses it, except for `wake`.

    Args:
        inbound: what comes from peers.
        links: the ways to them, which have news too.
        events: news of the links.
        local: the endpoint.
    """

    def __init__(self, inbound: Inbound, links: Links, events: deque[Event], local: LocalEnd) -> None:
        self.inbound = inbound
        self.links = links
        self._events = events
        self._counters = local.counters
        self._clock = local.clock
        self._since_pump = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def next(self, timeout_seconds: float) -> Event | None:
        """See `Endpoint.receive`."""
        deadline = self._clock() + timeout_seconds
        expired = False
        self.inbound.receipts.report_much()
        while True:
            self._since_pump += 1
            if self._since_pump >= _PUMP_EVERY_MESSAGES:
                self._pump()
            event = self._events.popleft() if self._events else self.inbound.take()
            if isinstance(event, PeerLost) and event.way is Way.OUT:
                self.inbound.receipts.repeat(event.peer)
            if event is not None:
                return event
            if expired:
                return None
            self.inbound.receipts.report_all()
            left = deadline - self._clock()
            if left > 0.0 and not self.links.is_holding and self._wait_for_frame(min(left, _FRAME_SECONDS)):
                continue
            expired = left <= 0.0
            if self._wait(left):
                self._pump()
                if self._woken():
                    return None

    def wake(self) -> None:
        """Make `next` return None soon, once; from any thread."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Nothing is waited for any more."""
        os.close(self._wake)

    def _pump(self) -> None:
        self._since_pump = 0
        self.inbound.receipts.report_all()
        self.inbound.pump()
        self.links.pump()

    def _wait_for_frame(self, seconds: float) -> bool:
        """Whether a frame comes in time, and nothing else that cannot wait."""
        ready = poll([self.inbound.socket, self._wake], seconds)
        return len(ready) == 1 and self.inbound.socket in ready

    def _wait(self, left_seconds: float) -> bool:
        """Until something comes; whether it is more than a frame."""
        pollables = [*self.inbound.pollables(), *self.links.pollables(), self._wake]
        ready = poll(pollables, min(left_seconds, self.links.seconds_to_next_step()))
        return len(ready) != 1 or self.inbound.socket not in ready

    def _woken(self) -> bool:
        try:
            return os.eventfd_read(self._wake) > 0
        except BlockingIOError:
            return False


class Endpoint:
    """Sends to and receives from peers. One thread uses it, except for `wake`, `allow` and `forbid`."""

    def __init__(
        self,
        name: str,
        *,
        bind: str,
        job_token: str,
        curve: CurveKeys | None = None,
        advertise: str | None = None,
        shared_memory: bool = True,
        place: Place | None = None,
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
            place: tells where messages should land, see `Place`.
            settings: bounds and times.
            clock: seconds, for deadlines and waits between attempts.
            allocate: allocates the pages of shared memory.

        Raises:
            BadMessage: the name is empty or too long, or the settings cut frames that nobody takes.
            BadAddress: the address cannot be bound.
        """
        settings = settings or TransportSettings()
        check_name(name)
        check_settings(settings)
        self.name = name
        self.counters = Counters()
        self._settings = settings
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
        events: deque[Event] = deque()
        self.links = Links(self._local, self._context, events)
        self._closed = False
        socket = self._context.socket(zmq.ROUTER)
        regions = SharedRegions(self._local) if settings.local_sockets else None
        acknowledged = self.links.acknowledge
        self.inbound = Inbound(socket, self._local, self._authenticator, regions, place, acknowledged)
        self._reception = Reception(self.inbound, self.links, events, self._local)
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
        """To whom `connect` was called, connected or not."""
        return self.links.peers

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
        self.links.forget(region)
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
        self.links.connect(peer, Address.parse(address))

    def disconnect(self, peer: str) -> None:
        """Give up the way to `peer`, and what is still under way on it; nothing if there is none."""
        self.links.disconnect(peer)

    def is_up(self, peer: str) -> bool:
        """Whether the way to `peer` stands."""
        return self.links.to(peer).state is LinkState.UP

    def shares_memory(self, peer: str) -> bool:
        """Whether `peer` reads our shared regions in place."""
        return self.links.to(peer).shares_memory

    def unacknowledged(self, peer: str) -> range:
        """Numbers of the messages on this connection that the peer's application did not receive yet."""
        link = self.links.to(peer)
        link.pump()
        return link.unacknowledged

    def losses(self, peer: str) -> tuple[int, int]:
        """Messages lost so far: (of ours, unacknowledged when a connection ended; of the peer's, never received)."""
        counters = self.counters.peer(peer)
        return counters.out.lost_messages, counters.into.lost_messages

    def send(
        self, peer: str, header: bytes, parts: Sequence[RegionPart] = (), *, timeout_seconds: float | None = None
    ) -> int:
        """Hand one message over; the memory of its parts must stay unchanged until the protocol says otherwise.

        Waits only for a connection, or for a peer that has too much in front of it.

        Args:
            peer: to whom `connect` was called.
            header: at most `max_header_bytes`.
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
        link = self.links.to(peer)
        check_message(header, parts, self._settings)
        self.links.await_room(
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
        return self._reception.next(timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the peers have received everything that was sent; whether they did."""
        return self.links.flush(timeout_seconds)

    def wake(self) -> None:
        """Make `receive` return None soon, once; from any thread."""
        self._reception.wake()

    def close(self) -> None:
        """Drop all connections; what is under way is lost, see `flush`."""
        if self._closed:
            return
        self._closed = True
        self.links.close()
        self.inbound.close()
        self._authenticator.close()
        self._context.term()
        self._reception.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
