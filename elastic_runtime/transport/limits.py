"""What a caller may ask for; said before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_runtime.transport.authentication import MOST_NAME_BYTES
from elastic_runtime.transport.errors import BadMessage
from elastic_runtime.transport.regions import Part
from elastic_runtime.transport.settings import TransportSettings
from elastic_runtime.transport.wire import MOST_FRAME_BYTES, SMALL_PART_BYTES


def check_name(name: str) -> None:
    """Of an endpoint.

    Raises:
        BadMessage: it is empty or too long.
    """
    if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
        raise BadMessage(f"the name of an endpoint has 1 to {MOST_NAME_BYTES} bytes: {name[:200]!r}")


def check_settings(settings: TransportSettings) -> None:
    """Of an endpoint.

    Raises:
        BadMessage: it would cut frames that nobody takes.
    """
    if not SMALL_PART_BYTES <= settings.frame_bytes <= MOST_FRAME_BYTES:
        raise BadMessage(f"frames of {settings.frame_bytes} bytes; {SMALL_PART_BYTES} to {MOST_FRAME_BYTES} work")


def check_message(header: bytes, parts: Sequence[Part], settings: TransportSettings) -> None:
    """Before it is sent.

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
