"""The queue of a worker's leased batches: a thread asks ahead, so that training never waits for the coordinator.

What is asked, and when, is decided in `protocol.leases_ahead`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from elastic_runtime.errors import CoordinatorUnreachable, ElasticError, ResizeFailed
from elastic_runtime.model.sample_leases import SampleLease
from elastic_runtime.worker.protocol.leases_ahead import LeasesAhead

Ask = Callable[[int, tuple[int, ...], int], tuple[tuple[SampleLease, ...], bool]]
"""Given the generation, the leases that are done and how many are to be held then: all leases held, of a batch each,
and whether nothing is left in any epoch. Raises CoordinatorUnreachable."""


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
        """Lease of this generation from now on; what was held of another is forgotten."""
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
        """Tell what is done, and want nothing more; whether that was told in time. `finished` is known then."""
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
