"""The messages of a member on their way to the data plane; those are kept for which a peer has no room yet.

Nothing here is certain to arrive: whoever needs an answer asks again. What is kept is bounded, and forgotten with its
generation or its peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

import structlog

from elastic_runtime.protocol.messages import Header, pack
from elastic_runtime.protocol.plan import Member
from elastic_runtime.transport import BadAddress, Busy, Endpoint, PeerUnreachable, RegionPart, UnknownPeer
from elastic_runtime.transport.sockets import Address

_log = structlog.get_logger()
_MOST_KEPT = 16384
"""Messages for one peer; a model of 64 GB in runs of 4 MB."""


class Outbox:
    """Everything that one member sends."""

    def __init__(self, endpoint: Endpoint, parts: Callable[[Header], Sequence[RegionPart]]) -> None:
        self._endpoint = endpoint
        self._parts = parts
        self._kept: dict[str, deque[Header]] = {}
        self._members: tuple[Member, ...] = ()

    def connect(self, members: Collection[Member], own: str) -> None:
        """Keep ways to these members open, and to no others."""
        chosen = tuple(member for member in members if member.task != own)
        if chosen == self._members:
            return
        self._members = chosen
        names = {member.task for member in chosen}
        for peer in self._endpoint.peers:
            if peer not in names:
                self._endpoint.disconnect(peer)
                self._endpoint.forbid(peer)
                self._kept.pop(peer, None)
        for member in chosen:
            try:
                self._endpoint.allow(member.task, Address.parse(member.address_json).public_key or None)
                self._endpoint.connect(member.task, member.address_json)
            except BadAddress as error:  # that member's fault: it is soon taken for dead, as nobody reaches it
                _log.error("peer-address-refused", peer=member.task, error=str(error))

    def send(self, messages: Iterable[tuple[str, Header]]) -> None:
        """Send now what can be sent now, in order for each peer; keep the rest."""
        for peer, header in messages:
            waiting = self._kept.get(peer)
            if waiting:
                self._keep(waiting, header)
            elif not self._try(peer, header):
                self._keep(self._kept.setdefault(peer, deque()), header)

    def flush(self) -> bool:
        """Send kept messages again; whether some are kept still."""
        for peer in tuple(self._kept):
            waiting = self._kept[peer]
            while waiting and self._try(peer, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._kept[peer]
        return bool(self._kept)

    def forget(self) -> None:
        """Drop kept messages: their generation is over."""
        self._kept.clear()

    def _keep(self, waiting: deque[Header], header: Header) -> None:
        if len(waiting) < _MOST_KEPT:
            waiting.append(header)

    def _try(self, peer: str, header: Header) -> bool:
        """Whether nothing is left to try: it is sent, or there is no way to the peer any more."""
        try:
            self._endpoint.send(peer, pack(header), self._parts(header), timeout_seconds=0.0)
        except (Busy, PeerUnreachable):
            return False
        except UnknownPeer:
            pass
        return True


def traffic_bytes(endpoint: Endpoint) -> tuple[int, int]:
    """Bytes of blocks sent to and received from all peers, past ones too, through sockets and shared memory."""
    counters = list(endpoint.counters.peers.values())
    sent = sum(c.out.frame_bytes + c.out.shared_bytes for c in counters)
    return sent, sum(c.into.frame_bytes + c.into.shared_bytes for c in counters)
