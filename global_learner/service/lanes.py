"""Lanes of calls: kinds with seats of their own, bounded queues and rates of each caller.

Operators have a lane that no cluster can enter. Heartbeats have one, so that a cluster that waits with an update is not
taken for dead; what the registry's one thread does has one, of which a cluster gets little, since that thread serves
callers in the order of arrival; polls wait long and hold nobody up. In a lane a free seat goes to the caller whose turn
is longest ago.

Source: Kubernetes API priority and fairness (seats, a queue a flow, a limit for each queue).
Deviation: a caller has a queue of its own instead of a hand of shared ones, since callers are known by name and few;
and it never has more than its share of the seats, even where others are free, since a seat is held until the answer
has been read, and a caller that reads nothing would hold them all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from global_learner.errors import ShareTaken, TooBusy, TooOften
from global_learner.identity import PEOPLE, Caller
from global_learner.settings import LearnerSettings
from global_learner.telemetry import LearnerTelemetry


@dataclass(frozen=True, slots=True)
class QueueShare:
    """How much of a queue there is, and how much of it one caller may have.

    Attributes:
        seats: calls in progress, of all callers.
        seats_per_caller: of one caller.
        waiting_per_caller: calls of one caller that wait for a seat.
        bytes_per_caller: no further call of a caller is begun while answers of so many bytes wait for it to read.
    """

    seats: int
    seats_per_caller: int
    waiting_per_caller: int
    bytes_per_caller: int


@dataclass(slots=True, eq=False)
class Seat:
    """One call's place, from when it is asked for until it is given back; `turn` is done once the call may begin."""

    caller: str
    begun: bool = False
    turn: asyncio.Future[None] | None = None
    unread_bytes: int = 0


@dataclass(slots=True)
class _Caller:
    seated: int = 0
    unread_bytes: int = 0
    waiting: deque[Seat] = field(default_factory=deque)


class FairQueue:
    """Seats for calls of one kind, on one event loop; a free seat goes to the caller whose turn is longest ago."""

    def __init__(self, share: QueueShare) -> None:
        self._share = share
        self.callers: dict[str, _Caller] = {}
        self._turns: dict[str, None] = {}
        """Callers with a call that waits and could begin, in the order of their turns."""
        self.seated = 0
        self.waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether no seat is free."""
        return self.seated >= self._share.seats

    def ask(self, caller: str) -> Seat:
        """A place in the queue; to be given back in any case.

        Raises:
            ShareTaken: the caller has as many calls waiting as it may.
        """
        own = self.callers.get(caller) or _Caller()
        if len(own.waiting) >= self._share.waiting_per_caller and not self._may_begin(own):
            raise ShareTaken(
                f"{own.seated} calls of this caller are in progress and {len(own.waiting)} wait; come again in a moment"
            )
        self.callers[caller] = own
        seat = Seat(caller)
        own.waiting.append(seat)
        self.waiting += 1
        self._line_up(caller, own)
        self._seat_next()
        if not seat.begun:
            seat.turn = asyncio.get_running_loop().create_future()
        return seat

    def hold(self, seat: Seat, unread_bytes: int) -> None:
        """Note how much a call's answer holds until it is read."""
        own = self.callers[seat.caller]
        own.unread_bytes += unread_bytes - seat.unread_bytes
        seat.unread_bytes = unread_bytes
        if not self._has_space(own):
            self._turns.pop(seat.caller, None)

    def give_back(self, seat: Seat) -> None:
        """End a call's place, whether it had begun or not."""
        own = self.callers[seat.caller]
        if seat.begun:
            own.seated -= 1
            self.seated -= 1
            own.unread_bytes -= seat.unread_bytes
        else:
            own.waiting.remove(seat)
            self.waiting -= 1
            if seat.turn is not None:
                seat.turn.cancel()
        if not own.waiting:
            self._turns.pop(seat.caller, None)
            if not own.seated:
                del self.callers[seat.caller]
        self._line_up(seat.caller, own)
        self._seat_next()

    def within_share(self, caller: str) -> bool:
        """Whether a caller's calls wait for others' seats, and not for its own."""
        own = self.callers.get(caller)
        return own is None or self._has_space(own)

    def _has_space(self, own: _Caller) -> bool:
        return own.seated < self._share.seats_per_caller and own.unread_bytes < self._share.bytes_per_caller

    def _may_begin(self, own: _Caller) -> bool:
        return not self.is_full and self._has_space(own)

    def _line_up(self, caller: str, own: _Caller) -> None:
        if own.waiting and self._has_space(own):
            self._turns.setdefault(caller)

    def _seat_next(self) -> None:
        while self._turns and not self.is_full:
            caller = next(iter(self._turns))
            del self._turns[caller]
            own = self.callers[caller]
            seat = own.waiting.popleft()
            self.waiting -= 1
            own.seated += 1
            self.seated += 1
            seat.begun = True
            if seat.turn is not None:
                seat.turn.set_result(None)
            self._line_up(caller, own)


_MOST_BUCKETS = 8192
"""Buckets that are full again are forgotten beyond so many; a caller without one has a full one."""


class RateLimits:
    """Rates of calls: a token bucket for each caller and method, of those that have a rate; for one event loop.

    Args:
        burst: calls at once, after a pause.
    """

    def __init__(self, per_minute: Mapping[str, float], burst: int, clock: Callable[[], float]) -> None:
        self._per_second = {method: rate / 60.0 for method, rate in per_minute.items()}
        self._burst = float(burst)
        self._clock = clock
        self._full_at: dict[tuple[str, str], float] = {}
        """When a bucket will be full again; that it lacks `rate` times what is left until then follows."""

    def take(self, caller: str, method: str) -> None:
        """Count one call.

        Raises:
            TooOften: the bucket is empty; the call does not count.
        """
        rate = self._per_second.get(method)
        if rate is None:
            return
        now = self._clock()
        full_at = max(now, self._full_at.get((caller, method), now)) + 1.0 / rate
        if full_at - now > self._burst / rate:
            wait = full_at - now - self._burst / rate
            raise TooOften(f"{method}: more than {60.0 * rate:g} a minute; come again in {wait:.1f} s")
        self._full_at[caller, method] = full_at
        if len(self._full_at) > _MOST_BUCKETS:
            self._full_at = {key: moment for key, moment in self._full_at.items() if moment > now}


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


class Lanes:
    """The lanes of one server; what belongs into one without a share goes into the registry's."""

    def __init__(
        self,
        shares: Mapping[Lane, QueueShare],
        rates: RateLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queues = {lane: FairQueue(share) for lane, share in shares.items()}
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


def lanes_of(settings: LearnerSettings, message_bytes: int, clock: Callable[[], float] = time.monotonic) -> Lanes:
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
    return Lanes(shares, RateLimits(rates, calls.burst, clock), clock)


def one_lane(share: QueueShare) -> Lanes:
    """A single lane for all calls of a server that has one purpose, without rates."""
    return Lanes(dict.fromkeys(Lane, share), RateLimits({}, 1, time.monotonic))
