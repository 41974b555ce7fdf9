"""Errors of the data plane's callers, and refusals of what its peers do wrong.

After `Busy` and `PeerUnreachable` the call may be repeated. `UnknownPeer` and `BadMessage` are mistakes of the caller.
What a *peer* does wrong raises nothing: it is a `TransportRefusal`, which is counted (`Endpoint.refusals`), and its
connection is closed.
"""

from __future__ import annotations

from elastic_runtime.errors import ElasticError
from foundation.python310 import StrEnum


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


class TransportRefusal(StrEnum):
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
    """A refused region, or a refused connection to hand over regions."""
