"""Binds the socket on which all peers reach us."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

import zmq

from elastic_runtime.transport.address import Address
from elastic_runtime.transport.authentication import DOMAIN
from elastic_runtime.transport.sockets import Own, Socket
from elastic_runtime.transport.wire import MOST_FRAME_BYTES


def listen(socket: Socket, own: Own, bind: str, advertise: str | None, share: str) -> Address:
    """Bind `socket` (a ROUTER) at `bind`, and on a Unix socket if there is one to hand over regions (`share`).

    Raises:
        zmq.ZMQError: the address cannot be bound.
    """
    own.set_options(socket, MOST_FRAME_BYTES)
    socket.router_mandatory = True
    socket.zap_domain = DOMAIN
    if own.curve is not None:
        socket.curve_server = True
        socket.curve_secretkey = own.curve.secret.encode()
    else:
        socket.plain_server = True
    socket.bind(bind)
    tcp = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    if advertise is not None:
        tcp = f"tcp://{advertise}:{urlsplit(tcp).port}"
    ipc = ""
    if share:
        ipc = f"ipc://@fedl2-data-{secrets.token_hex(16)}"
        socket.bind(ipc)
    return Address(tcp, ipc, share, own.host, own.curve.public if own.curve is not None else "")
