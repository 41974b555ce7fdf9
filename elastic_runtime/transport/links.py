"""Links to all peers, and waiting for one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from elastic_runtime.transport.errors import BadAddress, Busy, PeerUnreachable, UnknownPeer
from elastic_runtime.transport.message import Event
from elastic_runtime.transport.outbound import Link, LinkState
from elastic_runtime.transport.regions import Region, RegionPart
from elastic_runtime.transport.sockets import Address, Context, LocalEnd, Socket, poll
from elastic_runtime.transport.wire import Acknowledgement

_NEVER_SECONDS = 3600.0


class Links:
    """Of one endpoint, by peer."""

    def __init__(self, local: LocalEnd, context: Context, events: deque[Event]) -> None:
        self._local = local
        self._context = context
        self._counters = local.counters
        self._events = events
        self._links: dict[str, Link] = {}

    @property
    def peers(self) -> tuple[str, ...]:
        """Connected or not."""
        return tuple(self._links)

    def to(self, peer: str) -> Link:
        """The way to `peer`.

        Raises:
            UnknownPeer: there is none.
        """
        try:
            return self._links[peer]
        except KeyError:
            raise UnknownPeer(f"{self._local.name} has no way to {peer!r}; call connect first") from None

    def connect(self, peer: str, address: Address) -> None:
        """See `Endpoint.connect`.

        Raises:
            BadAddress: it has no key where we use CURVE.
        """
        if self._local.curve is not None and not address.public_key:
            raise BadAddress(f"the address of {peer} has no CURVE key; all members of a job use CURVE, or none does")
        link = self._links.get(peer)
        if link is None or link.address != address:
            self.disconnect(peer)
            out = self._counters.peer(peer).out
            self._links[peer] = Link(peer, address, self._local, self._context, out, self._events)

    def disconnect(self, peer: str) -> None:
        """Nothing if there is no way to it."""
        link = self._links.pop(peer, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Disconnect all."""
        for peer in self.peers:
            self.disconnect(peer)

    def pump(self) -> None:
        """Take in what happened; never waits."""
        for link in self._links.values():
            link.pump()

    def forget(self, region: Region) -> None:
        """No peer need keep it mapped."""
        for link in self._links.values():
            link.forget(region)

    def acknowledge(self, peer: str, received: Acknowledgement) -> None:
        """`peer` said with a message of its own what it has received."""
        link = self._links.get(peer)
        if link is not None:
            link.acknowledge(received)

    @property
    def is_holding(self) -> bool:
        """Whether messages wait for a peer's proof."""
        return any(link.is_holding for link in self._links.values())

    def pollables(self) -> list[Socket | int]:
        """What has news when it is readable."""
        return [pollable for link in self._links.values() for pollable in link.pollables()]

    def seconds_to_next_step(self) -> float:
        """After which `pump` has something to do even without news."""
        return min((link.seconds_to_next_step() for link in self._links.values()), default=_NEVER_SECONDS)

    def await_room(self, link: Link, parts: Sequence[RegionPart], timeout_seconds: float) -> None:
        """Until a message with `parts` can be sent.

        Raises:
            Busy: the peer did not receive enough of what was sent before, in time.
            PeerUnreachable: it is not connected, in time.
        """
        if link.state is LinkState.UP and link.room_for(parts):
            return
        started = self._local.clock()
        try:
            while True:
                link.pump()
                up = link.state is LinkState.UP
                if up and link.room_for(parts):
                    return
                left = started + timeout_seconds - self._local.clock()
                if left <= 0.0 and up:
                    raise Busy(f"{link.peer} has {len(link.unacknowledged)} messages that it did not receive yet")
                if left <= 0.0:
                    raise PeerUnreachable(f"no connection to {link.peer}: {link.trouble}")
                poll(link.pollables(), min(left, link.seconds_to_next_step()))
        finally:
            self._counters.peer(link.peer).out.wait_seconds += self._local.clock() - started

    def flush(self, timeout_seconds: float) -> bool:
        """See `Endpoint.flush`."""
        deadline = self._local.clock() + timeout_seconds
        while True:
            self.pump()
            waiting = [link for link in self._links.values() if link.unacknowledged]
            left = deadline - self._local.clock()
            if not waiting or left <= 0.0:
                return not waiting
            poll([pollable for link in waiting for pollable in link.pollables()], left)
