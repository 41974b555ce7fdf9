"""Messages and news about peers, as `Endpoint.receive` returns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Way(StrEnum):
    """Seen from here; each way is a connection of its own."""

    OUT = "out"
    """What we send."""
    IN = "in"
    """What the peer sends."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message, whole."""

    peer: str
    """Who sent it, authenticated."""
    header: bytes
    payload: tuple[memoryview, ...] = field(repr=False)
    """One a part, of unsigned bytes, read-only.

    Over sockets they are the message's own memory, which lives as long as somebody holds a view. In shared memory they
    are the *sender's* memory, in place: what they hold is only certain for as long as the sender's protocol keeps it
    unchanged. With `place` they are the memory that it gave.
    """
    sequence: int
    """Counts the sender's messages to us from 1, over all connections."""
    shared: bool = False
    """Whether some part is the sender's memory, mapped."""


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A connection is made and authenticated."""

    peer: str
    way: Way
    incarnation: str = ""
    """On the way in: of the peer's endpoint. Another one than before says that its process is new."""


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A connection ended. On the way out it is tried again until `disconnect`."""

    peer: str
    way: Way
    reason: str
    unacknowledged: range = range(0)
    """On the way out: numbers of the messages of which nobody knows whether the peer received them.

    It may have received any number of the first ones. Sending again, under a new number, is up to the caller.
    """


Event = Message | PeerUp | PeerLost

Place = Callable[[str, bytes, tuple[int, ...]], Sequence[memoryview] | None]
"""Where a message should land: given peer, header and sizes of the parts, writable memory of exactly these sizes (one
view of bytes a part), or None to take it as it comes. What it holds is only certain once the message is returned."""
