"""What a server listens at, HOST:PORT: its parts, and who can reach it."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  (refused, not listened on)


def _host_and_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:7070")
    return address


Address = Annotated[str, AfterValidator(_host_and_port)]
"""A setting that holds HOST:PORT."""


def split_address(address: str) -> tuple[str, int]:
    """Host (without the brackets of IPv6) and port of `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_everywhere(address: str) -> bool:
    """Whether the address is all of a machine's, and so names no host that could be dialled."""
    return split_address(address)[0] in _EVERYWHERE
