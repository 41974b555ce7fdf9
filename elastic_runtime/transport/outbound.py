"""Link to one peer: a connection that carries our messages there and their acknowledgements back.

ZeroMQ would connect again by itself and send what is still queued to whoever answers. Here each connection is a socket
of its own, so that no message outlives the connection that it was sent on, and what is lost with it is known.

Messages may be sent as soon as the connection stands, but none leaves before the peer has proved that it has the job's
token: what listens at the address of a server that died is given nothing. The peer does so when its application next
looks at its messages, before which it would have read none anyway.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
from collections import deque
from collections.abc import Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from elastic_runtime.transport.authentication import answer, is_genuine
from elastic_runtime.transport.counters import WayCounters
from elastic_runtime.transport.message import Event, PeerLost, PeerUp, Way
from elastic_runtime.transport.regions import Region, RegionPart
from elastic_runtime.transport.sharing import RegionSender
from elastic_runtime.transport.sockets import (
    FAILURES,
    NOT_WAITING,
    Address,
    Context,
    LocalEnd,
    Socket,
    dial,
    is_readable,
)
from elastic_runtime.transport.wire import (
    Acknowledgement,
    Challenge,
    FrameKind,
    Hello,
    Malformed,
    MessageHead,
    Reference,
    cut,
    kind_of,
    pack_hello,
    pack_message,
    pack_proof,
    unpack_challenge,
    unpack_reason,
    unpack_sequence,
)
from foundation.python310 import StrEnum


class LinkState(StrEnum):
    """State of a connection; a waiting one waits for the next attempt."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    UP = "up"


class Link:
    """To one peer; remade until it is closed."""

    def __init__(
        self,
        peer: str,
        address: Address,
        local: LocalEnd,
        context: Context,
        counters: WayCounters,
        events: deque[Event],
    ) -> None:
        self.peer = peer
        self.address = address
        self.state = LinkState.WAITING
        self.trouble = "not connected yet"
        self._local = local
        self._context = context
        self._counters = counters
        self._events = events
        self._socket: Socket | None = None
        self._monitor: Socket | None = None
        self._regions: RegionSender | None = None
        self._hello = Hello(local.incarnation, b"", local.name)
        self._queued: list[bytes | bytearray | zmq.Frame] | None = []
        """Frames that wait for the peer's proof; None once it came."""
        self._failures = 0
        self._next_seconds = local.clock()
        self._sent = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0
        self.pump()

    @property
    def unacknowledged(self) -> range:
        """Numbers of the messages on this connection that the peer's application has not received yet."""
        return range(self._in_flight[0][0], self._in_flight[-1][0] + 1) if self._in_flight else range(0)

    @property
    def shares_memory(self) -> bool:
        """Whether the peer reads our regions in place."""
        return self._regions is not None and self._regions.proven

    @property
    def is_holding(self) -> bool:
        """Whether messages wait for the peer's proof."""
        return bool(self._queued)

    def pollables(self) -> list[Socket | int]:
        """Sockets that are readable when there is news."""
        sockets = [socket for socket in (self._socket, self._monitor) if socket is not None]
        return [*sockets, *([self._regions.fileno()] if self._regions is not None else [])]

    def seconds_to_next_step(self) -> float:
        """After which `pump` has something to do even without news."""
        return max(0.0, self._next_seconds - self._local.clock()) if self.state is not LinkState.UP else 3600.0

    def has_capacity_for(self, parts: Sequence[RegionPart]) -> bool:
        """Whether the peer has received enough of what was sent before."""
        if not self._in_flight:
            return True
        settings = self._local.settings
        return (
            len(self._in_flight) < settings.max_in_flight_messages
            and self._in_flight_bytes + self._framed_bytes(parts) <= settings.max_in_flight_bytes
        )

    def send(self, header: bytes, parts: Sequence[RegionPart], received: Acknowledgement) -> int:
        """Hand one message to the socket; the connection is up and there is room.

        `received` goes with it: what we have of the peer's messages.

        Raises:
            zmq.ZMQError: it does not take it; the connection has to be given up.
        """
        references = self._refer(parts)
        sizes = [0 if reference.region else reference.size_bytes for reference in references]
        self._sent += 1
        frame_bytes = self._local.settings.frame_bytes
        self._put(pack_message(MessageHead(self._sent, frame_bytes, tuple(references), header, received)))
        for frame in cut(sizes, frame_bytes):
            if frame.joined:
                joined = bytearray(frame.size_bytes)
                for piece in frame.pieces:
                    joined[piece.offset_bytes : piece.offset_bytes + piece.size_bytes] = parts[piece.part].memory()
                self._put(joined)
            else:
                (piece,) = frame.pieces
                region, start = parts[piece.part].region, parts[piece.part].start_byte + piece.start_byte
                self._put(region.frame(start, start + piece.size_bytes))
        total = sum(sizes)
        self._in_flight.append((self._sent, total))
        self._in_flight_bytes += total
        self._counters.messages += 1
        self._counters.frame_bytes += total
        self._counters.shared_bytes += sum(reference.size_bytes for reference in references if reference.region)
        return self._sent

    def forget(self, region: Region) -> None:
        """The peer need not keep `region` mapped."""
        if self._regions is not None:
            try:
                self._regions.forget(region)
            except OSError:
                self._stop_sharing()

    def pump(self) -> None:
        """Take in what happened, and connect when it is time; never waits."""
        if self.state is LinkState.WAITING:
            if self._local.clock() >= self._next_seconds:
                self._open()
            return
        self._read_answers()
        self._read_monitor()
        if self._regions is not None and not self._regions.proven:
            try:
                self._regions.take_answer()
            except OSError:
                self._stop_sharing()
        if self.state is LinkState.CONNECTING and self._local.clock() >= self._next_seconds:
            self.fail("no answer in time")

    def fail(self, reason: str) -> None:
        """Give this connection up; another one is tried later."""
        was_up = self.state is LinkState.UP
        lost = self.unacknowledged
        self.close()
        settings = self._local.settings
        wait = min(settings.reconnect_most_seconds, settings.reconnect_first_seconds * 2.0 ** min(self._failures, 30))
        self._failures += 1
        self._next_seconds = self._local.clock() + wait
        self.trouble = reason
        if was_up:
            self._counters.lost_messages += len(lost)
            self._events.append(PeerLost(self.peer, Way.OUT, reason, lost))

    def close(self) -> None:
        """End the connection; what was not sent by now never is."""
        self._stop_sharing()
        if self._socket is not None:
            self._socket.disable_monitor()
            self._socket.close()
        if self._monitor is not None:
            self._monitor.close()
        self._socket = self._monitor = None
        self._queued = []
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self.state = LinkState.WAITING

    def _open(self) -> None:
        local = self._local
        link = secrets.token_bytes(16)
        self._hello = Hello(local.incarnation, link, local.name)
        endpoint, self._regions = _choose_way(self.address, local, self.peer, link)
        self._socket, self._monitor = dial(self._context, local, self.peer, self.address.public_key, link)
        self.state = LinkState.CONNECTING
        self._next_seconds = local.clock() + 2 * local.settings.handshake_seconds
        try:
            self._socket.connect(endpoint)
            with contextlib.suppress(zmq.Again):  # it failed already, as the monitor will say
                self._socket.send(pack_hello(self._hello), NOT_WAITING)
        except zmq.ZMQError as error:
            self.fail(f"{endpoint}: {error}")

    def _read_answers(self) -> None:
        while self._socket is not None and is_readable(self._socket):
            try:
                frame = self._socket.recv(NOT_WAITING)
                kind = kind_of(frame)
                if kind is FrameKind.REJECTION:
                    self.fail(f"it rejected a message: {unpack_reason(frame)}")
                elif self._queued is not None and kind is FrameKind.CHALLENGE:
                    self._meet(unpack_challenge(frame), self._queued)
                elif self._queued is None and kind is FrameKind.ACKNOWLEDGEMENT:
                    self._received(unpack_sequence(frame))
                else:
                    self.fail("it answers what no endpoint would")
            except Malformed:
                self.fail("it answers what no endpoint would")

    def _meet(self, challenge: Challenge, queued: Sequence[bytes | bytearray | zmq.Frame]) -> None:
        local = self._local
        if not is_genuine(local.token, self._hello, self.peer, challenge):
            self.fail("whoever answers at its address does not have the job's token")
            return
        self._queued = None
        self._failures = 0
        try:
            for frame in (pack_proof(answer(local.token, self._hello, self.peer, challenge)), *queued):
                self._put(frame)
        except zmq.ZMQError as error:
            self.fail(f"the socket does not take a message: {error}")

    def acknowledge(self, received: Acknowledgement) -> None:
        """The peer said with a message of its own what it has received."""
        if received.link == self._hello.link and self._queued is None:
            self._received(received.sequence)

    def _received(self, sequence: int) -> None:
        while self._in_flight and self._in_flight[0][0] <= sequence:
            _, size_bytes = self._in_flight.popleft()
            self._in_flight_bytes -= size_bytes

    def _read_monitor(self) -> None:
        while self._monitor is not None and is_readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(NOT_WAITING))
            failure = FAILURES.get(zmq.Event(event["event"]))
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.state = LinkState.UP
                self.trouble = ""
                self._counters.connections += 1
                self._events.append(PeerUp(self.peer, Way.OUT))
            elif failure is not None:
                self._read_answers()  # what came before the end
                self.fail(failure)

    def _refer(self, parts: Sequence[RegionPart]) -> list[Reference]:
        """The table of parts; those that the peer cannot map follow as frames."""
        return [
            Reference(part.region.number, part.start_byte, part.stop_byte)
            if self._share(part.region)
            else Reference(0, 0, part.size_bytes)
            for part in parts
        ]

    def _share(self, region: Region) -> bool:
        if self._regions is None or not self._regions.proven or not region.shared:
            return False
        try:
            self._regions.give(region)
        except OSError:
            self._stop_sharing()
            return False
        return True

    def _stop_sharing(self) -> None:
        if self._regions is not None:
            self._regions.close()
            self._regions = None

    def _framed_bytes(self, parts: Sequence[RegionPart]) -> int:
        shares = self.shares_memory
        return sum(part.size_bytes for part in parts if not (shares and part.region.shared))

    def _put(self, frame: bytes | bytearray | zmq.Frame) -> None:
        if self._socket is None:
            raise zmq.ZMQError(errno.ENOTCONN)
        if self._queued is not None:
            self._queued.append(frame)
        else:
            self._socket.send(frame, NOT_WAITING, copy=False, track=False)


def _choose_way(address: Address, local: LocalEnd, peer: str, link: bytes) -> tuple[str, RegionSender | None]:
    """Where to connect to, and who hands our regions over.

    On the same host that is a Unix socket, if somebody answers at the other one, on which regions are handed over.
    """
    if not local.settings.local_sockets or not address.ipc or not local.host or address.host != local.host:
        return address.tcp, None
    try:
        regions = RegionSender(address.share)
    except OSError:
        return address.tcp, None
    if local.shared_memory:
        try:
            regions.introduce(local.token, local.name, peer, link)
        except OSError:
            pass
        else:
            return address.ipc, regions
    regions.close()
    return address.ipc, None
