"""The leased batches that a worker holds ahead: which it has, how many it wants, when to ask and to tell.

No sockets, no threads, no clock. So much is held that training never waits for the coordinator, and little is to do
again if the worker is lost. What was computed is told with the next question, and after a second at the latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from elastic_runtime.model.sample_leases import SampleLease

_LEAST_AHEAD, _MOST_AHEAD = 2, 64
_AHEAD_SECONDS = 2.0
"""What is held ahead is to last about so long: a few round trips, and little to do again if the worker is lost."""
_REPORT_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
"""Between two questions where nothing was to be had."""


class LeasesAhead:
    """One worker's leases, in one generation after the other.

    Attributes:
        generation: whose leases these are; 0: none yet.
        ahead: what is held and not taken, in order.
        finished: nothing is left in any epoch.
        must_ask: what is done is to be told, and an answer is waited for.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.ahead: deque[SampleLease] = deque()
        self.finished = self.must_ask = False
        self._taken: set[int] = set()
        self._done: list[int] = []
        self._goal = 2 * _LEAST_AHEAD
        self._asked_seconds = self._empty_seconds = -_REPORT_SECONDS
        self._wants = self._empty = False

    def begin(self, generation: int) -> None:
        """Lease of this generation from now on; what was held of another is forgotten."""
        self.generation = generation
        self.ahead.clear()
        self._done.clear()
        self._taken.clear()
        self._empty = self.finished = False
        self._wants = True

    def take(self) -> SampleLease | None:
        """The next batch; None if none is held."""
        if not self.ahead:
            return None
        leased = self.ahead.popleft()
        self._taken.add(leased.id)
        return leased

    @property
    def is_last_taken(self) -> bool:
        """Nothing is held, and there was nothing more to be had."""
        return not self.ahead and (self._empty or self.finished)

    def on_done(self, lease: int) -> None:
        """The batch's update is applied to all blocks."""
        self._taken.discard(lease)
        self._done.append(lease)

    def stop(self) -> None:
        """Want nothing more, and tell what is done."""
        self._wants = False
        self.must_ask = True
        self.ahead.clear()

    def question(self, now: float) -> tuple[int, tuple[int, ...], int]:
        """What to ask: the generation, the leases that are done, and how many batches are to be held then."""
        return self.generation, tuple(self._done), self._wanted(now)

    def on_answer(
        self,
        question: tuple[int, Sequence[int], int],
        leases: Sequence[SampleLease],
        *,
        finished: bool,
        now: float,
    ) -> None:
        """The coordinator has answered with all leases that this worker holds."""
        generation, reported, batches = question
        if generation == self.generation:
            if not batches and set(reported) >= set(self._done):
                self.must_ask = False
            self._take_up(reported, leases, batches, finished=finished, reached=True, now=now)
        self._asked_seconds = now

    def on_silence(self, question: tuple[int, Sequence[int], int], now: float) -> None:
        """The coordinator was not reached, or had no room: nothing was told."""
        generation, _, batches = question
        if generation == self.generation:
            self._take_up((), (), batches, finished=False, reached=False, now=now)
        self._asked_seconds = now

    def is_due(self, now: float) -> bool:
        """Whether the coordinator is to be asked now."""
        if not self.generation:
            return False
        pause_seconds = now - self._asked_seconds
        soon = self.must_ask or (bool(self._done) and not self.ahead)
        telling = pause_seconds >= (_AGAIN_SECONDS if soon else _REPORT_SECONDS) and (soon or bool(self._done))
        return self._wanted(now) > 0 or telling

    @property
    def pause_seconds(self) -> float:
        """After how long to look again whether it is time to ask."""
        return _AGAIN_SECONDS if self.must_ask or self._done or (self._wants and not self.finished) else _REPORT_SECONDS

    def _take_up(
        self,
        reported: Sequence[int],
        leases: Sequence[SampleLease],
        batches: int,
        *,
        finished: bool,
        reached: bool,
        now: float,
    ) -> None:
        known = {one.id for one in self.ahead} | self._taken | {*reported, *self._done}
        new = [one for one in leases if one.id not in known]
        self._done = [lease for lease in self._done if lease not in reported]
        if self._wants:
            self.ahead.extend(new)
        self.finished = finished
        if batches or not reached:
            self._empty = reached and not new
            self._empty_seconds = now if not new else -_AGAIN_SECONDS
        if new:
            self._pace(now)

    def _pace(self, now: float) -> None:
        """Hold twice as much if half of it lasted a short time, half as much if it lasted long."""
        lasted = now - self._asked_seconds
        if lasted < _AHEAD_SECONDS / 4:
            self._goal = min(self._goal * 2, _MOST_AHEAD)
        elif lasted > _AHEAD_SECONDS * 2:
            self._goal = max(self._goal // 2, _LEAST_AHEAD)

    def _wanted(self, now: float) -> int:
        """How many batches are to be held, the one in hand included; 0: none are asked for now."""
        wanting = self._wants and not self.finished and len(self.ahead) <= self._goal // 2
        return self._goal + len(self._taken) if wanting and now - self._empty_seconds >= _AGAIN_SECONDS else 0
