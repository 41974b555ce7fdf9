"""The step barrier of a worker: the place where the training loop and the coordinator's views meet.

A control thread brings views and gets the worker's votes; the training loop asks to begin steps, and waits here where a
promise or a barrier demands it. Accepting and beginning happen under one lock, so that a clock is never overtaken. The
rules are in `protocol.step_turns`.

Source: DL2 §5 (the scaling clock).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from elastic_runtime.protocol.plan import Timeline, View
from elastic_runtime.worker.protocol.step_turns import StepTurns, Vote, WorkerTurn

_POLL_EVERY_SECONDS = 0.5


class StepBarrier:
    """One worker's barrier; `on_view` is called by the control thread, the rest by the training loop.

    Args:
        patience_seconds: how long the training loop waits for a proposal to be resolved.
        expelled: whether the coordinator takes this worker for dead; looked at now and then while waiting.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        patience_seconds: float,
        expelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._turns = StepTurns(name)
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._expelled = expelled
        self._changed = threading.Condition(threading.RLock())
        self.waited_seconds = 0.0

    def on_view(self, view: View) -> Vote:
        """Take up a newer view; returns the vote on its proposal."""
        if not self._turns.is_newer(view):
            return Vote()
        timeline = self._turns.timeline_of(view)  # without the lock: training is not to wait for it
        with self._changed:
            vote = self._turns.on_view(view, timeline)
            self._changed.notify_all()
            return vote

    @property
    def view(self) -> View | None:
        """The newest."""
        with self._changed:
            return self._turns.view

    @property
    def timeline(self) -> Timeline:
        """Of the newest view.

        Raises:
            RuntimeError: none has come.
        """
        with self._changed:
            if self._turns.timeline is None:
                raise RuntimeError("no view has come yet")
            return self._turns.timeline

    def wait(self, ready: Callable[[View], bool], timeout_seconds: float) -> View | None:
        """Wait for a view of which `ready` holds; None if none came in time, or the worker was expelled."""
        with self._changed:
            turns = self._turns
            self._wait(lambda: self._expelled() or (turns.view is not None and ready(turns.view)), timeout_seconds)
            view = turns.view
            return view if view is not None and ready(view) and not self._expelled() else None

    def begin(self, step: int, generation: int) -> WorkerTurn:
        """Begin a step of a generation, or say why not; waits as long as a promise or a barrier demands."""
        with self._changed:
            turn = self._turn(step, generation)
            if turn is None:
                began = self._clock()
                self._wait(lambda: self._turn(step, generation) is not None, self._patience_seconds)
                self.waited_seconds += self._clock() - began
                turn = self._turn(step, generation) or WorkerTurn.SILENT
            if turn is WorkerTurn.GO:
                self._turns.begun = step
            return turn

    def may_begin(self, step: int, generation: int) -> bool:
        """Whether `begin` would let this step begin now."""
        with self._changed:
            return self._turn(step, generation) is WorkerTurn.GO

    def _turn(self, step: int, generation: int) -> WorkerTurn | None:
        return self._turns.turn(step, generation, expelled=self._expelled())

    def _wait(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait for a view that makes `ready` true; looks up now and then, as an expulsion comes without a view."""
        deadline = self._clock() + timeout_seconds
        while not ready() and (left := deadline - self._clock()) > 0:
            self._changed.wait(min(left, _POLL_EVERY_SECONDS))
