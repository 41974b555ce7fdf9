"""Messages and news about peers, as `Endpoint.receive` returns them."""

from __future__ import annotations

from dataclasses import dataclass, field

from foundation.python310 import StrEnum


class Way(StrEnum):
    """Direction of messages, seen from here; each way is a connection of its own."""

    OUT = "out"
    IN = "in"


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message, whole.

    Attributes:
        peer: who sent it, authenticated.
        payload: one a part, of unsigned bytes, read-only. Over sockets it is the message's own memory, which lives as
            long as somebody holds a view. In shared memory it is the *sender's* memory, in place: what it holds is only
            certain for as long as the sender's protocol keeps it unchanged.
        sequence: counts the sender's messages to us from 1, over all connections.
        shared: some part is the sender's memory, mapped.
    """

    peer: str
    header: bytes
    payload: tuple[memoryview, ...] = field(repr=False)
    sequence: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A connection is made and authenticated.

    Attributes:
        incarnation: on the way in: of the peer's endpoint. Another one than before says that its process is new.
    """

    peer: str
    way: Way
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A connection ended. On the way out it is tried again until `disconnect`.

    Attributes:
        unacknowledged: on the way out: numbers of the messages of which nobody knows whether the peer received them. It
            may have received any number of the first ones. Sending again, under a new number, is up to the caller.
    """

    peer: str
    way: Way
    reason: str
    unacknowledged: range = range(0)


Event = Message | PeerUp | PeerLost
