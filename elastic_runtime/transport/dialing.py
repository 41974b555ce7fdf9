"""Opens one connection to a peer: by the shortest way, and with proof of who we are."""

from __future__ import annotations

import zmq

from elastic_runtime.transport.address import Address
from elastic_runtime.transport.authentication import prove
from elastic_runtime.transport.sharing import RegionSender
from elastic_runtime.transport.sockets import Context, Own, Socket

_MOST_ANSWER_BYTES = 1024
FAILURES = {
    zmq.EVENT_DISCONNECTED: "the connection ended",
    zmq.EVENT_CLOSED: "nobody answers at its address",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it refused us: wrong token or key, or our name is not allowed there",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it speaks another protocol, or its key is not the one in its address",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it closed the connection before it was made",
}
"""What ends a connection, in words for an error message."""


def choose_way(address: Address, own: Own, peer: str, link: bytes) -> tuple[str, RegionSender | None]:
    """Where to connect to, and who hands our regions over.

    On the same host that is a Unix socket, if somebody answers at the other one, on which regions are handed over.
    """
    if not own.settings.local_sockets or not address.ipc or not own.host or address.host != own.host:
        return address.tcp, None
    try:
        regions = RegionSender(address.share)
    except OSError:
        return address.tcp, None
    if own.shared_memory:
        try:
            regions.introduce(own.token, own.name, peer, link)
        except OSError:
            pass
        else:
            return address.ipc, regions
    regions.close()
    return address.ipc, None


def make_socket(context: Context, own: Own, peer: str, public_key: str, link: bytes) -> tuple[Socket, Socket]:
    """The connection's socket, not connected yet, and the one that tells what becomes of it."""
    socket = context.socket(zmq.DEALER)
    own.set_options(socket, _MOST_ANSWER_BYTES)
    socket.routing_id = b"L" + link
    socket.reconnect_ivl = -1
    if own.curve is not None:
        socket.curve_publickey = own.curve.public.encode()
        socket.curve_secretkey = own.curve.secret.encode()
        socket.curve_serverkey = public_key.encode()
    else:
        socket.plain_username = own.name.encode()
        socket.plain_password = prove(own.token, own.name, peer).encode()
    return socket, socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(FAILURES))
