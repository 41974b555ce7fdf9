"""Counters of one endpoint, for metrics, and log lines about its refusals."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from elastic_runtime.transport.errors import TransportRefusal
from elastic_runtime.transport.settings import Clock
from foundation.refusal_log import RefusalWindows

_QUIET_SECONDS = 10.0
"""Between two lines of one reason."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class WayCounters:
    """One peer, one way.

    Attributes:
        frame_bytes: of parts that went through a socket.
        shared_bytes: of parts that were read in place.
        lost_messages: out: unacknowledged when a connection ended; in: gaps in the sequence.
    """

    messages: int = 0
    frame_bytes: int = 0
    shared_bytes: int = 0
    connections: int = 0
    lost_messages: int = 0
    wait_seconds: float = 0.0


@dataclass(slots=True)
class PeerCounters:
    """One peer, both ways."""

    out: WayCounters = field(default_factory=WayCounters)
    into: WayCounters = field(default_factory=WayCounters)


class Counters:
    """Counters of all peers of one endpoint, and of its refusals."""

    def __init__(self) -> None:
        self.peers: dict[str, PeerCounters] = {}
        self.refusals: dict[TransportRefusal, int] = dict.fromkeys(TransportRefusal, 0)

    def peer(self, name: str) -> PeerCounters:
        """One peer's, made when first asked for."""
        return self.peers.setdefault(name, PeerCounters())


class EndpointRefusalLog:
    """Log lines of one endpoint's refusals: a flood of them fills counters, and not the log.

    Each thread that refuses has its own.
    """

    def __init__(self, endpoint: str, clock: Clock) -> None:
        self._endpoint = endpoint
        self._windows: RefusalWindows[TransportRefusal] = RefusalWindows(clock, quiet_seconds=_QUIET_SECONDS)

    def write(self, reason: TransportRefusal, **fields: str) -> None:
        """Log one refusal, with how many went before it without a line. Never given a secret."""
        due = self._windows.on_refusal(reason)
        if due is not None:
            _, left_out = due
            _log.warning("peer-refused", endpoint=self._endpoint, reason=reason.value, before_unsaid=left_out, **fields)
