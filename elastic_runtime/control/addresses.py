"""Addresses of a coordinator: a host and a port, or a Unix socket where all of a job is on one machine.

They are written as gRPC reads them: a socket's path stands behind `unix:`, in the form that URIs have.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import quote, unquote

from elastic_runtime.control.checks import check_host_and_port
from elastic_runtime.errors import BadInput

_UNIX = "unix:"
_ABSTRACT = "unix-abstract:"
"""A socket without a file, which every user of this machine reaches; a coordinator's own, behind a port."""


def check_coordinator(address: str) -> str:
    """An address of a coordinator, `host:port` or a Unix socket on this machine.

    Raises:
        BadInput: it is neither.
    """
    if not address.startswith(_UNIX):
        return check_host_and_port(address)
    path = path_of_socket(address)
    if path is None or not path.is_absolute() or socket_address(path) != address:
        raise BadInput(f"{address[:200]!r} is no address; give host:port, or unix: and a socket's whole path")
    return address


def socket_address(path: Path) -> str:
    """Address of a coordinator on a Unix socket."""
    return _UNIX + quote(str(path))


def path_of_socket(address: str) -> Path | None:
    """The Unix socket of an address; None if it is of another kind."""
    return Path(unquote(address.removeprefix(_UNIX))) if address.startswith(_UNIX) else None


def is_loopback(address: str) -> bool:
    """Whether an address reaches this machine only."""
    if path_of_socket(address) is not None or address.startswith(_ABSTRACT):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
