"""Data plane between workers and parameter servers: knows bytes, regions of memory and peers, nothing of training."""

from elastic_runtime.transport.authentication import CurveKeys
from elastic_runtime.transport.endpoint import Endpoint
from elastic_runtime.transport.errors import (
    BadAddress,
    BadMessage,
    Busy,
    PeerUnreachable,
    TransportRefusal,
    UnknownPeer,
)
from elastic_runtime.transport.message import Event, Message, PeerLost, PeerUp, Way
from elastic_runtime.transport.regions import Region, RegionPart
from elastic_runtime.transport.settings import TransportSettings

__all__ = [
    "Endpoint",
    "TransportSettings",
    "CurveKeys",
    "Region",
    "RegionPart",
    "Event",
    "Message",
    "PeerUp",
    "PeerLost",
    "Way",
    "TransportRefusal",
    "Busy",
    "PeerUnreachable",
    "UnknownPeer",
    "BadMessage",
    "BadAddress",
]
