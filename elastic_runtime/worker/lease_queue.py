"""Queue of a worker's leased batches: a thread asks ahead, so that training never waits for the coordinator.

Little is held, so that little is to do again if the worker is lost. What was computed is told with the next question,
and after a second at the latest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from elastic_runtime.errors import CoordinatorUnreachable, ElasticError, ResizeFailed
from elastic_runtime.model.sample_leases import SampleLease

Ask = Callable[[int, tuple[int, ...], int], tuple[tuple[SampleLease, ...], bool]]
"""Given the generation, the leases that are done and how many are to be held then: all leases held, of a batch each,
and whether nothing is left in any epoch. Raises CoordinatorUnreachable."""
_LEAST_AHEAD, _MOST_AHEAD = 2, 64
_AHEAD_SECONDS = 2.0
"""What is held ahead is to last about so long: a few round trips, and little to do again if the worker is lost."""
_REPORT_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
"""Between two questions where nothing was to be had."""


class LeasesAhead:
    """One worker's leases, in one generation after the other; no sockets, no threads, no clock of its own.

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
        self._question_seconds = self._empty_seconds = -_REPORT_SECONDS
        self._leasing = self._empty = False

    def begin(self, generation: int) -> None:
        """Lease for this generation from now on; leases of another are forgotten."""
        self.generation = generation
        self.ahead.clear()
        self._done.clear()
        self._taken.clear()
        self._empty = self.finished = False
        self._leasing = True

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
        """Lease nothing more, and report finished batches."""
        self._leasing = False
        self.must_ask = True
        self.ahead.clear()

    def question(self, now: float) -> tuple[int, tuple[int, ...], int]:
        """What to ask: the generation, the leases that are done, and how many batches are to be held then."""
        return self.generation, tuple(self._done), self._desired(now)

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
        self._question_seconds = now

    def on_silence(self, question: tuple[int, Sequence[int], int], now: float) -> None:
        """The coordinator was not reached, or had no room: nothing was told."""
        generation, _, batches = question
        if generation == self.generation:
            self._take_up((), (), batches, finished=False, reached=False, now=now)
        self._question_seconds = now

    def is_due(self, now: float) -> bool:
        """Whether the coordinator is to be asked now."""
        if not self.generation:
            return False
        pause_seconds = now - self._question_seconds
        soon = self.must_ask or (bool(self._done) and not self.ahead)
        reports = pause_seconds >= (_AGAIN_SECONDS if soon else _REPORT_SECONDS) and (soon or bool(self._done))
        return self._desired(now) > 0 or reports

    @property
    def pause_seconds(self) -> float:
        """After how long to look again whether it is time to ask."""
        return (
            _AGAIN_SECONDS if self.must_ask or self._done or (self._leasing and not self.finished) else _REPORT_SECONDS
        )

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
        if self._leasing:
            self.ahead.extend(new)
        self.finished = finished
        if batches or not reached:
            self._empty = reached and not new
            self._empty_seconds = now if not new else -_AGAIN_SECONDS
        if new:
            self._pace(now)

    def _pace(self, now: float) -> None:
        """Hold twice as much if half of it lasted a short time, half as much if it lasted long."""
        lasted = now - self._question_seconds
        if lasted < _AHEAD_SECONDS / 4:
            self._goal = min(self._goal * 2, _MOST_AHEAD)
        elif lasted > _AHEAD_SECONDS * 2:
            self._goal = max(self._goal // 2, _LEAST_AHEAD)

    def _desired(self, now: float) -> int:
        """How many batches are to be held, the one in hand included; 0: none are asked for now."""
        wanting = self._leasing and not self.finished and len(self.ahead) <= self._goal // 2
        return self._goal + len(self._taken) if wanting and now - self._empty_seconds >= _AGAIN_SECONDS else 0


class LeaseQueue:
    """Batches ahead; `take`, `on_done` and the rest are for the training loop.

    Attributes:
        failure: why no more leases come; None: they do.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._changed = threading.Condition()
        self._leases = LeasesAhead()
        self._closed = False
        self.failure: ElasticError | None = None
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def begin(self, generation: int) -> None:
        """Lease for this generation from now on; leases of another are forgotten."""
        with self._changed:
            self._leases.begin(generation)
            self._changed.notify_all()

    def take(self, timeout_seconds: float) -> SampleLease | None:
        """The next batch; None if none has come in time, or none will."""
        leases = self._leases
        with self._changed:
            self._changed.wait_for(lambda: leases.ahead or leases.finished or self.failure is not None, timeout_seconds)
            leased = leases.take()
            if leased is not None:
                self._changed.notify_all()
            return leased

    @property
    def next(self) -> SampleLease | None:
        """The batch that `take` would give now."""
        with self._changed:
            return self._leases.ahead[0] if self._leases.ahead else None

    @property
    def is_last_taken(self) -> bool:
        """Nothing is held, and there was nothing more to be had."""
        with self._changed:
            return self._leases.is_last_taken

    @property
    def finished(self) -> bool:
        """Nothing is left in any epoch, as of the last answer."""
        return self._leases.finished

    def on_done(self, leased: SampleLease) -> None:
        """The batch's update is applied to all blocks."""
        with self._changed:
            self._leases.on_done(leased.id)
            self._changed.notify_all()

    def stop(self, timeout_seconds: float) -> bool:
        """Lease nothing more, and report finished batches; whether that was heard in time. `finished` is known then."""
        with self._changed:
            self._leases.stop()
            self._changed.notify_all()
            return self._changed.wait_for(
                lambda: not self._leases.must_ask or self.failure is not None, timeout_seconds
            )

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._leases.is_due(self._clock()):
                    self._changed.wait(self._leases.pause_seconds)
                if self._closed:
                    return
                question = self._leases.question(self._clock())
            try:
                leases, finished = self._ask(*question)
            except (CoordinatorUnreachable, ResizeFailed):  # the latter: no room to remember a lease
                with self._changed:
                    self._leases.on_silence(question, self._clock())
                    self._changed.notify_all()
            except ElasticError as error:
                with self._changed:
                    self.failure = error
                    self._changed.notify_all()
                return
            else:
                with self._changed:
                    self._leases.on_answer(question, leases, finished=finished, now=self._clock())
                    self._changed.notify_all()
