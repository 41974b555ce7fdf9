"""Messages that come in: one socket for all peers, one `InboundConnection` for each of their links.

Nothing of a connection reaches the caller before its sender has answered our challenge to its hello, and the hello only
counts if ZeroMQ authenticated the same name. After a frame that is not what its place asks for, nothing that follows
can be understood: the connection is rejected, which its sender notices, and connects again.
"""

from __future__ import annotations

import contextlib
import hmac
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from elastic_runtime.transport.assembly import Assembly, MemoryPool
from elastic_runtime.transport.authentication import ZapAuthenticator, answer, challenge
from elastic_runtime.transport.counters import EndpointRefusalLog
from elastic_runtime.transport.errors import TransportRefusal
from elastic_runtime.transport.message import Event, Message, PeerLost, PeerUp, Way
from elastic_runtime.transport.settings import MOST_NAME_BYTES
from elastic_runtime.transport.sharing import SharedRegions
from elastic_runtime.transport.sockets import NOT_WAITING, LocalEnd, Socket, is_readable
from elastic_runtime.transport.wire import (
    NOTHING,
    Acknowledgement,
    Challenge,
    Hello,
    Malformed,
    Reference,
    pack_acknowledgement,
    pack_challenge,
    pack_rejection,
    unpack_hello,
    unpack_message,
    unpack_proof,
)

_MUCH_BYTES = 256 * 1024
"""An acknowledgement of less waits until there is nothing else to do, or a message to go with."""


class OutOfRange(Malformed):
    """A reference to memory that the peer did not hand over."""


@dataclass(slots=True)
class InboundConnection:
    """One peer's link to us; `descriptor` is its socket's, by which ZeroMQ tells that it ended."""

    identity: bytes
    hello: Hello
    challenge: Challenge
    descriptor: int
    assembly: Assembly | None = None
    proven: bool = False
    rejected: bool = False


class Receipts:
    """Acknowledgements of what our application has received and its senders do not know yet, by peer.

    An acknowledgement is a frame of its own only when no message goes to the same peer: it wakes two threads on either
    side. When the connection ends that carried such a message, it is sent again.

    Args:
        send: sends one on its own, to a peer, of a message's number.
    """

    def __init__(self, send: Callable[[str, int], None]) -> None:
        self._send = send
        self._due: dict[str, Acknowledgement] = {}
        self._newest: dict[str, Acknowledgement] = {}
        self._due_bytes = 0

    def add(self, peer: str, link: bytes, sequence: int, size_bytes: int) -> None:
        """The application is about to have this message."""
        self._due[peer] = self._newest[peer] = Acknowledgement(link, sequence)
        self._due_bytes += size_bytes

    def take(self, peer: str) -> Acknowledgement:
        """For a message that goes to `peer` anyway."""
        return self._due.pop(peer, NOTHING)

    def repeat(self, peer: str) -> None:
        """What was told with messages may not have come to `peer`."""
        if peer in self._newest:
            self._due[peer] = self._newest[peer]

    def end(self, peer: str) -> None:
        """The connection that they are for is gone."""
        self._due.pop(peer, None)
        self._newest.pop(peer, None)

    def report_much(self) -> None:
        """Send them if they make up much of the senders' windows."""
        if self._due_bytes >= _MUCH_BYTES:
            self.report_all()

    def report_all(self) -> None:
        """Send what is due."""
        due, self._due, self._due_bytes = self._due, {}, 0
        for peer, acknowledgement in due.items():
            self._send(peer, acknowledgement.sequence)


class Inbound:
    """All peers' messages."""

    def __init__(
        self,
        socket: Socket,
        local: LocalEnd,
        authenticator: ZapAuthenticator,
        regions: SharedRegions | None,
        acknowledged: Callable[[str, Acknowledgement], None],
    ) -> None:
        self.socket = socket
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._local = local
        self._authenticator = authenticator
        self._counters = local.counters
        self._regions = regions
        self._acknowledged = acknowledged
        self._pool = MemoryPool()
        self._log = EndpointRefusalLog(local.name, local.clock)
        self._connections: dict[bytes, InboundConnection] = {}
        self._by_peer: dict[str, InboundConnection] = {}
        # By peer, over its connections: its incarnation and the number of its newest message.
        self._numbered: dict[str, tuple[bytes, int]] = {}
        self.receipts = Receipts(self._acknowledge)
        self._events: deque[Event] = deque()

    def pollables(self) -> list[Socket | int]:
        """Sockets that are readable when there is news."""
        return [self.socket, self._monitor, *(self._regions.pollables() if self._regions is not None else [])]

    def peers(self) -> set[str]:
        """Who is connected to us."""
        return set(self._by_peer)

    def take(self) -> Event | None:
        """The next message or news that is there; never waits."""
        while not self._events:
            if not is_readable(self.socket):
                return None
            identity = self.socket.recv(NOT_WAITING)
            connection = self._connections.get(identity)
            if connection is None:
                self._greet(identity)
            elif connection.rejected:
                self._skip()
            elif self._authenticator.is_forbidden(connection.hello.name):
                self._skip()
                self._reject(connection, TransportRefusal.FORBIDDEN, "not allowed any more")
            elif not connection.proven:
                self._take_proof(connection)
            else:
                message = self._take_frame(connection)
                if message is not None:
                    return message
        return self._events.popleft()

    def pump(self) -> None:
        """Notice connections that ended, and regions that were handed over; never waits."""
        if self._regions is not None:
            self._regions.pump()
        for reason, number in self._authenticator.take_refused().items():
            self._counters.refusals[reason] += number
        while is_readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(NOT_WAITING))
            ended = [each for each in self._connections.values() if each.descriptor == event["value"]]
            for connection in ended:
                self._end(connection, "the connection ended")
            if not ended:
                self._counters.refusals[TransportRefusal.HANDSHAKE] += 1

    def close(self) -> None:
        """Take nothing any more."""
        self.socket.disable_monitor()
        self._monitor.close()
        self.socket.close()
        if self._regions is not None:
            self._regions.close()

    def _greet(self, identity: bytes) -> None:
        frame = self.socket.recv(NOT_WAITING, copy=False)
        descriptor, user = int(frame.get(zmq.SRCFD)), str(frame.get("User-Id"))
        try:
            self._expect_last()
            hello = unpack_hello(frame.bytes[:1024])
        except Malformed as error:
            self._refuse(identity, user, TransportRefusal.UNKNOWN, str(error))
            return
        if hello.name != user:
            detail = f"{hello.name[:MOST_NAME_BYTES]!r} is not what was proved"
            self._refuse(identity, user, TransportRefusal.BAD_NAME, detail)
            return
        if self._authenticator.is_forbidden(user):
            self._refuse(identity, user, TransportRefusal.FORBIDDEN, "not allowed any more")
            return
        self.pump()  # an earlier connection's end may bear the same descriptor
        sent = challenge(self._local.token, hello, self._local.name)
        self._connections[identity] = InboundConnection(identity, hello, sent, descriptor)
        self._answer(identity, pack_challenge(sent))

    def _take_proof(self, connection: InboundConnection) -> None:
        hello = connection.hello
        try:
            proof = unpack_proof(self.socket.recv(NOT_WAITING))
            self._expect_last()
        except Malformed as error:
            self._skip_rest()
            self._reject(connection, TransportRefusal.MALFORMED, str(error))
            return
        if not hmac.compare_digest(proof, answer(self._local.token, hello, self._local.name, connection.challenge)):
            detail = "it did not answer our challenge: wrong token, or a repetition"
            self._reject(connection, TransportRefusal.BAD_TOKEN, detail)
            return
        connection.proven = True
        user = hello.name
        before = self._by_peer.get(user)
        if before is not None:
            self._end(before, "another connection took its place")
        self._by_peer[user] = connection
        if self._numbered.get(user, (b"", 0))[0] != hello.incarnation:
            self._numbered[user] = (hello.incarnation, 0)
        self._counters.peer(user).into.connections += 1
        self._events.append(PeerUp(user, Way.IN, hello.incarnation.hex()))

    def _take_frame(self, connection: InboundConnection) -> Message | None:
        try:
            if connection.assembly is None:
                connection.assembly = self._begin(connection, self.socket.recv(NOT_WAITING))
            else:
                connection.assembly.take_frame(self.socket)
            self._expect_last()
        except OutOfRange as error:
            self._reject(connection, TransportRefusal.OUT_OF_RANGE, str(error))
            return None
        except Malformed as error:
            self._skip_rest()
            self._reject(connection, TransportRefusal.MALFORMED, str(error))
            return None
        if not connection.assembly.complete:
            return None
        assembly, connection.assembly = connection.assembly, None
        return self._finish(connection, assembly)

    def _begin(self, connection: InboundConnection, frame: bytes) -> Assembly:
        settings, peer = self._local.settings, connection.hello.name
        head = unpack_message(frame, settings.max_header_bytes, settings.max_parts, settings.max_message_bytes)
        if head.acknowledgement.sequence:
            self._acknowledged(peer, head.acknowledgement)
        incarnation, last = self._numbered[peer]
        is_new = head.sequence > last
        if is_new:
            self._counters.peer(peer).into.lost_messages += head.sequence - last - 1
            self._numbered[peer] = (incarnation, head.sequence)
        else:
            self._counters.refusals[TransportRefusal.DUPLICATE] += 1

        def view(reference: Reference) -> memoryview:
            regions = self._regions
            found = regions.view(peer, connection.hello.link, *reference) if regions is not None else None
            if found is None:
                raise OutOfRange(f"part {reference.start_byte}:{reference.stop_byte} of region {reference.region}")
            return found

        return Assembly(peer, head, view, self._pool, is_new=is_new)

    def _finish(self, connection: InboundConnection, assembly: Assembly) -> Message | None:
        head = assembly.head
        size_bytes = sum(reference.size_bytes for reference in head.references)
        self.receipts.add(connection.hello.name, connection.hello.link, head.sequence, size_bytes)
        if not assembly.is_new:
            return None
        counters = self._counters.peer(connection.hello.name).into
        counters.messages += 1
        for reference in head.references:
            if reference.region:
                counters.shared_bytes += reference.size_bytes
            else:
                counters.frame_bytes += reference.size_bytes
        return assembly.message()

    def _reject(self, connection: InboundConnection, refusal: TransportRefusal, reason: str) -> None:
        self._refuse(connection.identity, connection.hello.name, refusal, reason)
        connection.rejected = True
        connection.assembly = None

    def _refuse(self, identity: bytes, peer: str, refusal: TransportRefusal, reason: str) -> None:
        self._counters.refusals[refusal] += 1
        self._log.write(refusal, peer=peer, detail=reason)
        self._answer(identity, pack_rejection(f"{refusal.value}: {reason}"))

    def _end(self, connection: InboundConnection, reason: str) -> None:
        peer = connection.hello.name
        self._connections.pop(connection.identity, None)
        if connection.assembly is not None and connection.assembly.is_new:
            self._counters.peer(peer).into.lost_messages += 1
        if self._regions is not None:
            self._regions.end(connection.hello.link)
        if self._by_peer.get(peer) is connection:
            del self._by_peer[peer]
            self.receipts.end(peer)
            self._events.append(PeerLost(peer, Way.IN, reason))

    def _acknowledge(self, peer: str, sequence: int) -> None:
        connection = self._by_peer.get(peer)
        if connection is not None:
            self._answer(connection.identity, pack_acknowledgement(sequence))

    def _answer(self, identity: bytes, frame: bytes) -> None:
        # A sender that is gone tells so by its end; to one that does not read its answers a later one says the same.
        with contextlib.suppress(zmq.ZMQError):
            self.socket.send_multipart([identity, frame], NOT_WAITING)

    def _expect_last(self) -> None:
        if self.socket.get(zmq.RCVMORE):
            self._skip_rest()
            raise Malformed("a message of several frames")

    def _skip(self) -> None:
        self.socket.recv_into(bytearray(), flags=NOT_WAITING)
        self._skip_rest()

    def _skip_rest(self) -> None:
        while self.socket.get(zmq.RCVMORE):
            self.socket.recv_into(bytearray(), flags=NOT_WAITING)
