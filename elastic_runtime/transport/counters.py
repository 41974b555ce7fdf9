"""What went over the data plane, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from elastic_runtime.transport.sockets import Clock


class Refusal(StrEnum):
    """Why something from outside was not let in; metrics know these words."""

    BAD_TOKEN = "bad-token"  # noqa: S105 -- the name of a reason
    """Its proof of the job's token was wrong."""
    BAD_KEY = "bad-key"
    """Its CURVE key belongs to no peer that is allowed."""
    BAD_NAME = "bad-name"
    """It says another name than it proved."""
    FORBIDDEN = "forbidden"
    """The peer was shut out since."""
    HANDSHAKE = "handshake"
    """It ended before it had said who it is: garbage, no answer in time, or one of the reasons above."""
    UNKNOWN = "unknown"
    """A message on a connection without a hello."""
    MALFORMED = "malformed"
    """A frame that is not what its place asks for."""
    OUT_OF_RANGE = "out-of-range"
    """A reference to memory that the peer did not hand over."""
    DUPLICATE = "duplicate"
    """A message whose number was received before."""
    SHARING = "sharing"
    """A region, or a connection to hand over regions, that was refused."""


@dataclass(slots=True)
class WayCounters:
    """One peer, one way."""

    messages: int = 0
    frame_bytes: int = 0
    """Parts that went through a socket."""
    shared_bytes: int = 0
    """Parts that were read in place."""
    connections: int = 0
    lost_messages: int = 0
    """Out: unacknowledged when a connection ended. In: gaps in the sequence."""
    wait_seconds: float = 0.0
    """Out: time that `send` waited for this peer."""


@dataclass(slots=True)
class PeerCounters:
    """One peer, both ways."""

    out: WayCounters = field(default_factory=WayCounters)
    into: WayCounters = field(default_factory=WayCounters)


class Counters:
    """Of one endpoint."""

    def __init__(self) -> None:
        self.peers: dict[str, PeerCounters] = {}
        self.refusals: dict[Refusal, int] = dict.fromkeys(Refusal, 0)
        self.receive_wait_seconds = 0.0

    def peer(self, name: str) -> PeerCounters:
        """Of one peer, made when first asked for."""
        return self.peers.setdefault(name, PeerCounters())

    def refuse(self, reason: Refusal) -> None:
        """Count one."""
        self.refusals[reason] += 1


# DOC of elastic_runtime.transport.counters:
# Log lines of what was refused: whoever knocks again and again fills counters, and not the log.

_QUIET_SECONDS = 10.0
"""Between two lines of one reason."""

_log = structlog.get_logger(__name__)


class RefusalLog:
    """Of one endpoint; each thread that refuses has its own."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._said_seconds: dict[Refusal, float] = {}
        self._unsaid: dict[Refusal, int] = {}

    def say(self, reason: Refusal, **fields: str) -> None:
        """One refusal; with how many went before it without a line. Never given a secret."""
        now = self._clock()
        said = self._said_seconds.get(reason)
        if said is not None and now < said + _QUIET_SECONDS:
            self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
            return
        self._said_seconds[reason] = now
        _log.warning(
            "refused on the data plane",
            endpoint=self._endpoint,
            reason=reason.value,
            before_unsaid=self._unsaid.pop(reason, 0),
            **fields,
        )
