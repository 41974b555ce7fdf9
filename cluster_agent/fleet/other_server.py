"""Other server at an address where the learner was expected: what it is, and which setting to mend.

Asked at most once a minute of an address: retries come every few seconds, and several threads make them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import grpc

from policy_net.exchange.spoken import NO_CONNECTION, Spoken, handshake_reason, spoken_at

_KEPT_SECONDS = 60.0
_LONGEST_LOOK_SECONDS = 5.0
"""Who has not said by then what it speaks counts as silent; a thread of the agent's that asks the learner waits."""
_REFUSED = "Connection refused"
"""What gRPC says where nobody listens: the usual outage, in which a whole fleet need not knock once more."""

_OTHER_PORT = "set {setting} to the HOST:PORT of a learner's `{port}`"
_REMEDIES = {
    (Spoken.NO_HOST, True): "see to the name in {setting}",
    (Spoken.NO_HOST, False): "see to the name in {setting}",
    (Spoken.HTTP, True): _OTHER_PORT,
    (Spoken.HTTP, False): _OTHER_PORT,
    (Spoken.HTTPS, True): _OTHER_PORT,
    (Spoken.HTTPS, False): _OTHER_PORT,
    (Spoken.TLS, False): "name this agent's enrollment file (learner.enrollment_file) or certificates (learner.tls)",
    (Spoken.TLS, True): "enroll this agent with that learner, or name its certificates in learner.tls",
    (Spoken.PLAIN, True): "leave out learner.tls and learner.enrollment_file, or name another address",
}
"""By what is there, and whether the agent tried TLS; else the learner is what is missing."""
_ENROLL = "Enroll"


class OtherServers:
    """What is said of addresses at which no learner answers; safe to use from several threads.

    Args:
        patience_seconds: of calls to the learner.
        clock: seconds, never back.
    """

    def __init__(self, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_seconds = min(patience_seconds, _LONGEST_LOOK_SECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, Spoken]] = {}

    def explained(self, call: str, code: grpc.StatusCode, details: str, address: str, certified: bool) -> str:
        """Why a call met no learner, and what to do; empty where a learner answered, or too late.

        Args:
            call: its name.
            details: what gRPC, or the learner, said.
            address: HOST:PORT that was called, IPv6 in brackets.
            certified: whether by TLS.
        """
        setting = "learner.enroll_address" if call == _ENROLL else "learner.address"
        port = "identity.enroll_port" if call == _ENROLL else "listen"
        mend = _OTHER_PORT.format(setting=setting, port=port)
        if code is grpc.StatusCode.UNIMPLEMENTED and call == "Register":
            what = "takes no clusters, as a learner's enrollment port (identity.enroll_port) does"
            return f"what listens at {address} {what}; {mend}"
        if code is grpc.StatusCode.UNIMPLEMENTED and call == _ENROLL:
            return f"what listens at {address} enrolls nobody, as a learner's `listen` does; {mend}"
        if code is not grpc.StatusCode.UNAVAILABLE or not details.startswith(NO_CONNECTION):
            return ""
        found = Spoken.NOBODY if _REFUSED in details else self._spoken(address)
        said = f"no learner answers at {address}: {found}"
        if found is Spoken.TLS and certified:
            said += f", but not with these certificates ({handshake_reason(details)})"
        elif found is Spoken.PLAIN and not certified:  # as learners do that end amid a call
            return f"no learner answers at {address}: the connection broke off"
        remedy = _REMEDIES.get((found, certified), "").format(setting=setting, port=port)
        return f"{said}; {remedy}" if remedy else said

    def _spoken(self, address: str) -> Spoken:
        with self._lock:
            until, found = self._found.get(address, (-1.0, Spoken.NOBODY))
        if self._clock() < until:
            return found
        host, _, port = address.rpartition(":")
        found = spoken_at(host.strip("[]"), int(port), self._patience_seconds)
        with self._lock:
            self._found[address] = (self._clock() + _KEPT_SECONDS, found)
        return found
