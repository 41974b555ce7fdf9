"""Data plane between workers and parameter servers: knows bytes, regions of memory and peers, nothing of training."""

from elastic_runtime.transport.authentication import CurveKeys
from elastic_runtime.transport.counters import Counters, PeerCounters, WayCounters
from elastic_runtime.transport.endpoint import Endpoint
from elastic_runtime.transport.errors import (
    BadAddress,
    BadMessage,
    Busy,
    PeerUnreachable,
    Refusal,
    TransportError,
    UnknownPeer,
)
from elastic_runtime.transport.message import Event, Message, PeerLost, PeerUp, Place, Way
from elastic_runtime.transport.regions import Part, Region
from elastic_runtime.transport.settings import TransportSettings

__all__ = [
    "Endpoint",
    "TransportSettings",
    "CurveKeys",
    "Region",
    "Part",
    "Event",
    "Message",
    "PeerUp",
    "PeerLost",
    "Way",
    "Place",
    "Counters",
    "PeerCounters",
    "WayCounters",
    "Refusal",
    "TransportError",
    "Busy",
    "PeerUnreachable",
    "UnknownPeer",
    "BadMessage",
    "BadAddress",
]
