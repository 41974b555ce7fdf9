"""A worker's leased batches, asked for ahead by a thread, so that training never waits for the coordinator.

What was computed is told with the next question, and after a second at the latest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from elastic_runtime.control.messages import LeasedRange
from elastic_runtime.errors import CoordinatorUnreachable, ElasticError, ResizeFailed

Ask = Callable[[int, tuple[int, ...], int], tuple[tuple[LeasedRange, ...], bool]]
"""Given the generation, the leases that are done and how many are to be held then: all leases held, of a batch each,
and whether nothing is left in any epoch. Raises CoordinatorUnreachable."""
_LEAST_AHEAD, _MOST_AHEAD = 2, 64
_AHEAD_SECONDS = 2.0
"""What is held ahead is to last about so long: a few round trips, and little to do again if the worker is lost."""
_TELL_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
"""Between two questions where nothing was to be had."""


class LeaseQueue:
    """Batches ahead; `take`, `done` and the rest are for the training loop.

    Args:
        ask: the coordinator.
        clock: seconds, monotonic.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._changed = threading.Condition()
        self._generation = 0
        self._ahead: deque[LeasedRange] = deque()
        self._taken: set[int] = set()
        self._done: list[int] = []
        self._goal = 2 * _LEAST_AHEAD
        self._asked_seconds = self._empty_seconds = -_TELL_SECONDS
        self._asking = self._wants = self._closed = False
        self._empty = self._must_ask = False
        self.finished = False
        self.failure: ElasticError | None = None
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def begin(self, generation: int) -> None:
        """Lease of this generation from now on; what was held of another is forgotten."""
        with self._changed:
            self._generation = generation
            self._ahead.clear()
            self._done.clear()
            self._taken.clear()
            self._empty = self.finished = False
            self._wants = True
            self._changed.notify_all()

    def take(self, timeout_seconds: float) -> LeasedRange | None:
        """The next batch; None if none has come in time, or none will."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self.finished or self.failure is not None, timeout_seconds)
            if not self._ahead:
                return None
            leased = self._ahead.popleft()
            self._taken.add(leased.lease)
            self._changed.notify_all()
            return leased

    @property
    def next(self) -> LeasedRange | None:
        """The batch that `take` would give now."""
        with self._changed:
            return self._ahead[0] if self._ahead else None

    @property
    def last(self) -> bool:
        """Nothing is held, and there was nothing more to be had."""
        with self._changed:
            return not self._ahead and (self._empty or self.finished)

    def done(self, leased: LeasedRange) -> None:
        """The batch's update is applied to all blocks."""
        with self._changed:
            self._taken.discard(leased.lease)
            self._done.append(leased.lease)
            self._changed.notify_all()

    def stop(self, timeout_seconds: float) -> bool:
        """Tell what is done, and want nothing more; whether that was told in time. `finished` is known then."""
        with self._changed:
            self._wants = False
            self._must_ask = True
            self._ahead.clear()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._must_ask or self.failure is not None, timeout_seconds)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._due():
                    self._changed.wait(self._pause_seconds())
                if self._closed:
                    return
                generation, done = self._generation, tuple(self._done)
                batches = self._wanted()
                self._asking = True
            try:
                leases, finished = self._ask(generation, done, batches)
            except (CoordinatorUnreachable, ResizeFailed):  # the latter: no room to remember a lease
                self._asked(generation, (), batches=batches, leases=(), finished=False, reached=False)
            except ElasticError as error:
                with self._changed:
                    self.failure = error
                    self._asking = False
                    self._changed.notify_all()
                return
            else:
                self._asked(generation, done, batches=batches, leases=leases, finished=finished, reached=True)

    def _asked(
        self,
        generation: int,
        told: tuple[int, ...],
        *,
        batches: int,
        leases: tuple[LeasedRange, ...],
        finished: bool,
        reached: bool,
    ) -> None:
        with self._changed:
            self._asking = False
            now = self._clock()
            if generation == self._generation:
                known = {one.lease for one in self._ahead} | self._taken | {*told, *self._done}
                leases = tuple(one for one in leases if one.lease not in known)
                if reached and not batches and set(told) >= set(self._done):
                    self._must_ask = False
                self._done = [lease for lease in self._done if lease not in told]
                if self._wants:
                    self._ahead.extend(leases)
                self.finished = finished
                if batches or not reached:
                    self._empty = reached and not leases
                    self._empty_seconds = now if not leases else -_AGAIN_SECONDS
                if leases:
                    self._pace(now)
            self._asked_seconds = now
            self._changed.notify_all()

    def _pace(self, now: float) -> None:
        """Hold twice as much if half of it lasted a short time, half as much if it lasted long."""
        lasted = now - self._asked_seconds
        if lasted < _AHEAD_SECONDS / 4:
            self._goal = min(self._goal * 2, _MOST_AHEAD)
        elif lasted > _AHEAD_SECONDS * 2:
            self._goal = max(self._goal // 2, _LEAST_AHEAD)

    def _wanted(self) -> int:
        """How many batches are to be held, the one in hand included; 0: none are asked for now."""
        wanting = self._wants and not self.finished and len(self._ahead) <= self._goal // 2
        return self._goal + len(self._taken) if wanting and self._clock() - self._empty_seconds >= _AGAIN_SECONDS else 0

    def _due(self) -> bool:
        if not self._generation:
            return False
        pause_seconds = self._clock() - self._asked_seconds
        soon = self._must_ask or (bool(self._done) and not self._ahead)
        telling = pause_seconds >= (_AGAIN_SECONDS if soon else _TELL_SECONDS) and (soon or bool(self._done))
        return self._wanted() > 0 or telling

    def _pause_seconds(self) -> float:
        return _AGAIN_SECONDS if self._must_ask or self._done or (self._wants and not self.finished) else _TELL_SECONDS
