"""What can go wrong on the data plane; the layer above decides what becomes of its step.

`TransportError` is the root. `Busy` and `PeerUnreachable` come from `send` after its deadline: nothing was sent, and
the call may be repeated. `UnknownPeer` and `BadMessage` are mistakes of the caller. What a *peer* does wrong raises
nothing: it is counted (`Endpoint.refusals`) and the connection is closed.
"""

from __future__ import annotations

from elastic_runtime.errors import ElasticError


class TransportError(ElasticError):
    """Root of the data plane's errors."""


class Busy(TransportError):
    """The peer has not received what was sent before; nothing was sent, try again later."""


class PeerUnreachable(TransportError):
    """There is no connection to the peer; nothing was sent."""


class UnknownPeer(TransportError):
    """`connect` was not called for this peer."""


class BadMessage(TransportError):
    """A header, part or name that the transport does not carry."""


class BadAddress(TransportError):
    """A text that is not an endpoint's address."""
