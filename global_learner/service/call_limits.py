"""Limits of calls: a bounded number of seats with a bounded queue for each caller, served in turn; and rates.

Source: Kubernetes API priority and fairness (seats, a queue a flow, a limit for each queue).
Deviation: a caller has a queue of its own instead of a hand of shared ones, since callers are known by name and few;
and it never has more than its share of the seats, even where others are free, since a seat is held until the answer
has been read, and who reads nothing would hold them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from global_learner.errors import ShareTaken, TooOften


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
        if not self._has_room(own):
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
        return own is None or self._has_room(own)

    def _has_room(self, own: _Caller) -> bool:
        return own.seated < self._share.seats_per_caller and own.unread_bytes < self._share.bytes_per_caller

    def _may_begin(self, own: _Caller) -> bool:
        return not self.is_full and self._has_room(own)

    def _line_up(self, caller: str, own: _Caller) -> None:
        if own.waiting and self._has_room(own):
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
