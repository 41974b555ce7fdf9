"""Bounds and times of the data plane, and the checks of what a caller asks for against them.

Every default says why it is what it is. What a caller asks for is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elastic_runtime.transport.errors import BadMessage
from elastic_runtime.transport.regions import RegionPart
from elastic_runtime.transport.wire import MOST_FRAME_BYTES, SMALL_PART_BYTES

Clock = Callable[[], float]
"""Seconds, from anywhere, never back."""

MOST_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """How an `Endpoint` behaves; all members of a job should use the same."""

    frame_bytes: int = 1024 * 1024
    """Payload travels in frames of at most this; 1 MB is copied while it is in the cache. 4 MB is the most."""
    max_header_bytes: int = 64 * 1024
    """Of one message's header; parameters belong into parts."""
    max_parts: int = 4096
    """Of one message; its table of parts is at most 80 KB then."""
    max_message_bytes: int = 1024 * 1024 * 1024
    """Of one message's parts together; a larger model is sent as several messages."""
    max_in_flight_bytes: int = 256 * 1024 * 1024
    """Sent to one peer and not yet received by its application, which bounds the memory that a slow peer needs.

    One message may be larger when nothing else is in flight. Parts in shared memory do not count: they take none.
    """
    max_in_flight_messages: int = 4096
    """The same in messages; it also bounds what waits in the sockets' queues."""
    max_region_bytes: int = 16 * 1024 * 1024 * 1024
    """Largest region of a peer that is mapped."""
    max_regions: int = 1024
    """Regions of one peer that are mapped at once."""
    send_timeout_seconds: float = 10.0
    """How long `send` waits for a slow or absent peer, unless told otherwise."""
    heartbeat_seconds: float = 1.0
    """Between two heartbeats on an idle connection."""
    heartbeat_timeout_seconds: float = 5.0
    """A peer that is silent for so long is lost. The sockets' own threads answer, however busy the application."""
    handshake_seconds: float = 5.0
    """A connection that is not made and authenticated by then is closed."""
    reconnect_first_seconds: float = 0.05
    """Wait before the first attempt to connect again; doubled with each failure."""
    reconnect_most_seconds: float = 2.0
    """Most that is waited between two attempts."""
    local_sockets: bool = True
    """Reach peers on the same host over Unix sockets; without them there is no shared memory either."""
    io_threads: int = 1
    """Threads that move bytes; a second one helps only where cores are idle."""
    keep_freed_memory: bool = True
    """Ask the C library to keep freed memory in the process, for the next frame; all of the process's memory."""

    @property
    def max_queued_frames(self) -> int:
        """High-water mark of the sockets: more frames than the bounds above let anybody have in flight."""
        whole = max(self.max_in_flight_bytes, self.max_message_bytes) // self.frame_bytes
        return whole + self.max_parts + 2 * self.max_in_flight_messages


def check_name(name: str) -> None:
    """An endpoint's name.

    Raises:
        BadMessage: it is empty or too long.
    """
    if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
        raise BadMessage(f"the name of an endpoint has 1 to {MOST_NAME_BYTES} bytes: {name[:200]!r}")


def check_settings(settings: TransportSettings) -> None:
    """An endpoint's settings.

    Raises:
        BadMessage: they would cut frames that nobody takes.
    """
    if not SMALL_PART_BYTES <= settings.frame_bytes <= MOST_FRAME_BYTES:
        raise BadMessage(f"frames of {settings.frame_bytes} bytes; {SMALL_PART_BYTES} to {MOST_FRAME_BYTES} work")


def check_message(header: bytes, parts: Sequence[RegionPart], settings: TransportSettings) -> None:
    """A message, before it is sent.

    Raises:
        BadMessage: header or parts are larger, or more, than the settings allow, or not within their regions.
    """
    total = sum(part.size_bytes for part in parts)
    if len(header) > settings.max_header_bytes:
        raise BadMessage(f"header of {len(header)} bytes; at most {settings.max_header_bytes}")
    if len(parts) > settings.max_parts or total > settings.max_message_bytes:
        raise BadMessage(
            f"{len(parts)} parts of {total} bytes; at most {settings.max_parts} of {settings.max_message_bytes}"
        )
    for part in parts:
        part.memory()
