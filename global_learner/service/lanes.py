"""Lanes of calls: kinds that do not take each other's room, and the caller behind each call.

Operators have a lane that no cluster can enter. Heartbeats have one, so that a cluster that waits with an update is not
taken for dead; what the registry's one thread does has one, of which a cluster gets little, since that thread serves
who comes first; polls wait long and hold nobody up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from global_learner.errors import TooBusy
from global_learner.folded_lines import host_of
from global_learner.identity import AuthContext, Caller
from global_learner.roles import PEOPLE, CallerRole
from global_learner.service.call_limits import FairQueue, QueueShare, RateLimits
from global_learner.settings import LearnerSettings
from global_learner.telemetry import LearnerTelemetry

_BYTES_IN_MESSAGES = 4
"""Answers that one caller may leave unread before its next call waits, in the largest message."""
_STARVED_SECONDS = 15.0
"""How long after a caller was refused for want of room the learner says that it is not ready."""


class Lane(StrEnum):
    """Kind of a call."""

    OPERATORS = "operators"
    UPDATES = "updates"
    HEARTBEATS = "heartbeats"
    REGISTRY = "registry"
    POLLS = "polls"


_LANES: Mapping[str, Lane] = MappingProxyType(
    {
        "Push": Lane.UPDATES,
        "PullHead": Lane.UPDATES,
        "Reply": Lane.UPDATES,
        "Heartbeat": Lane.HEARTBEATS,
        "Poll": Lane.POLLS,
    }
)
"""All other methods are the registry's."""
_MOST_OF_REGISTRY = 2
"""Calls of one cluster in the registry's lane: whoever has more of them waiting there makes all others wait too."""
_REGISTRY_SEATS = 64
OPERATOR_SHARE = QueueShare(seats=32, seats_per_caller=16, waiting_per_caller=64, bytes_per_caller=256 << 20)


CallerOf = Callable[[AuthContext, str], Caller]
"""Who calls, by what gRPC knows of the connection and its peer; IdentityRefused for nobody whose calls count."""


def calling_host(_context: AuthContext, peer: str) -> Caller:
    """The calling host: what tells callers apart where none shows a certificate."""
    return Caller(host_of(peer), CallerRole.UNCERTIFIED)


class Lanes:
    """The lanes of one server; what belongs into one without a share goes into the registry's."""

    def __init__(
        self,
        caller_of: CallerOf,
        shares: Mapping[Lane, QueueShare],
        rates: RateLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queues = {lane: FairQueue(share) for lane, share in shares.items()}
        self.caller_of = caller_of
        self._rates = rates
        self._clock = clock
        self._starved_at: dict[Lane, float] = {}

    def report_to(self, telemetry: LearnerTelemetry) -> None:
        """Let the metrics say how full the lanes are whenever they are asked."""
        for lane, queue in self.queues.items():
            telemetry.seated.labels(lane).set_function(partial(getattr, queue, "seated"))
            telemetry.queued.labels(lane).set_function(partial(getattr, queue, "waiting"))

    def lane(self, caller: Caller, method: str) -> Lane:
        """The lane of a call.

        Raises:
            TooOften: the caller asks this too often.
        """
        if caller.role in PEOPLE:
            return Lane.OPERATORS
        self._rates.take(caller.name, method)
        return _LANES.get(method, Lane.REGISTRY)

    def on_full(self, lane: Lane, caller: Caller) -> TooBusy:
        """A call has waited for too long; how to refuse it."""
        if self.queues[lane].within_share(caller.name):
            self._starved_at[lane] = self._clock()
        return TooBusy(f"all room for {lane} is taken by calls in progress; come again in a moment")

    def starved(self) -> str:
        """Which callers were refused lately for want of room, though they had not had their share; empty for none."""
        since = self._clock() - _STARVED_SECONDS
        lanes = sorted(lane for lane, moment in list(self._starved_at.items()) if moment >= since)
        return f"callers are refused for want of room: {', '.join(lanes)}" if lanes else ""


def lanes_of(
    caller_of: CallerOf, settings: LearnerSettings, message_bytes: int, clock: Callable[[], float] = time.monotonic
) -> Lanes:
    """The lanes of the service that agents and operators call; `message_bytes` is the largest message's."""
    calls, requests = settings.calls, settings.ingest.max_concurrent_requests
    own, wait, unread = calls.per_cluster, calls.waiting_per_cluster, _BYTES_IN_MESSAGES * message_bytes
    shares = {
        Lane.OPERATORS: OPERATOR_SHARE,
        Lane.UPDATES: QueueShare(requests, own, wait, unread),
        Lane.HEARTBEATS: QueueShare(requests, own, wait, unread),
        Lane.REGISTRY: QueueShare(_REGISTRY_SEATS, min(own, _MOST_OF_REGISTRY), wait, unread),
        Lane.POLLS: QueueShare(max(requests, own * settings.ingest.max_clusters), own, wait, unread),
    }
    rates = {
        "Register": calls.registrations_per_minute,
        "ShareBeliefs": calls.reports_per_minute,
        "ShareEvidence": calls.reports_per_minute,
        "ShareSketch": calls.reports_per_minute,
        "FetchPolicy": calls.fetches_per_minute,
        "ReturnPolicy": calls.fetches_per_minute,
        "RenewCertificate": calls.renewals_per_minute,
    }
    if not settings.authenticated:
        # Only connections tell callers apart: whoever wants more makes a new one, and simulations live faster.
        rates = {}
    return Lanes(caller_of, shares, RateLimits(rates, calls.burst, clock), clock)


def one_lane(caller_of: CallerOf, share: QueueShare) -> Lanes:
    """A single lane for all calls of a server that has one purpose, without rates."""
    return Lanes(caller_of, dict.fromkeys(Lane, share), RateLimits({}, 1, time.monotonic))
