"""Other server at an address where a learner was expected: what it is, and what to do about it.

Somebody has mistaken one port for another, or left out a certificate.
"""

from __future__ import annotations

from foundation.text import plain_line
from policy_net.exchange.spoken import Spoken, handshake_reason, spoken_at

_START = "start it, or name another one with --learner"
_OTHER_PORT = "name the HOST:PORT of a learner's `listen` with --learner"
_OTHER_FILES = "name those of this learner with --cert, or with --ca, --cert and --key"
_REMEDIES = {
    (Spoken.HTTP, True): _OTHER_PORT,
    (Spoken.HTTP, False): _OTHER_PORT,
    (Spoken.HTTPS, True): _OTHER_PORT,
    (Spoken.HTTPS, False): _OTHER_PORT,
    (Spoken.OPEN_TLS, False): f"{_OTHER_PORT}; if it is that, name your identity file with --cert",
    (Spoken.TLS, False): "name your identity file with --cert",
    (Spoken.TLS, True): _OTHER_FILES,
    (Spoken.PLAIN, True): "leave out --cert, --key and --ca (and FEDL2_CERT)",
}
"""By what is there, and whether certificates were shown; else the learner is what is missing."""
NOT_FOR_OPERATORS = (
    "what listens there takes no operator's commands, as a learner's enrollment port (identity.enroll_port) does; "
    f"{_OTHER_PORT}"
)
"""Of a server that answers by gRPC, and does not know the oldest of all calls."""


def explained(address: str, certified: bool, patience_seconds: float, details: str) -> str:
    """Why no learner answers at an address, and what to do.

    Args:
        address: HOST:PORT, IPv6 in brackets.
        certified: whether the caller tried TLS.
        details: what gRPC said, for what only it knows.
    """
    host, _, port = address.rpartition(":")
    found = spoken_at(host.strip("[]"), int(port), patience_seconds)
    if found is Spoken.OPEN_TLS and certified:  # it is its certificate that was not taken
        found = Spoken.TLS
    remedy = _REMEDIES.get((found, certified), _START)
    if found is Spoken.TLS and certified:
        return f"{found}, but not with these certificates ({handshake_reason(details)}); {remedy}"
    if found is Spoken.PLAIN and not certified:
        return f"what listens there gave no answer within {patience_seconds:g} s ({plain_line(details, 200)}); {remedy}"
    return f"{found}; {remedy}"
