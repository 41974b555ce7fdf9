"""Whether a worker may begin a step: the place where the training loop and the coordinator's views meet.

A worker that accepts a proposed change promises not to begin the step at its clock before the proposal is confirmed or
withdrawn. Accepting and beginning happen under one lock, so that a clock is never overtaken. All else goes on: with a
clock some steps ahead nobody ever waits here.

Source: DL2 §5 (the scaling clock). Deviation: workers agree to the clock before it holds, as two of them may be a step
apart when it is chosen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from elastic_runtime.protocol.plan import Phase, Timeline, View

_LOOK_UP_SECONDS = 0.5


class Turn(StrEnum):
    """What a worker is to do."""

    GO = "go"
    """Begin the step."""
    ENTER = "enter"
    """A new generation: pull all blocks at its first step, whatever was done since."""
    LEAVE = "leave"
    """Removed, or the job halts or is over: end the loop."""
    FAILED = "failed"
    """The job cannot go on."""
    EXPELLED = "expelled"
    """This worker was taken for dead."""
    SILENT = "silent"
    """The coordinator did not resolve a proposal in time."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What a worker answers to a view; 0: nothing to answer."""

    accepted: int = 0
    refused: int = 0


class Gate:
    """One worker's gate; `receive` is called by the control thread, the rest by the training loop.

    Args:
        name: the task's.
        clock: seconds, monotonic.
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
        self._name = name
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._expelled = expelled
        self._changed = threading.Condition(threading.RLock())
        self._view: View | None = None
        self._timeline: Timeline | None = None
        self._begun = -1
        self._promised_clock: int | None = None
        self.waited_seconds = 0.0

    def receive(self, view: View) -> Vote:
        """Take up a newer view; returns the vote on its proposal."""
        before = self._view
        if before is not None and view.number <= before.number:
            return Vote()
        new_generation = before is None or view.generation != before.generation
        timeline = self._timeline
        if (
            before is None
            or timeline is None
            or new_generation
            or (view.changes, view.substitutes, view.lost_servers)
            != (before.changes, before.substitutes, before.lost_servers)
        ):
            timeline = Timeline(view)  # some milliseconds of a large model's: training is not to wait for it
        with self._changed:
            self._timeline = timeline
            if new_generation:
                self._begun = -1
            self._view = view
            vote = self._vote(view, timeline)
            self._changed.notify_all()
            return vote

    def _vote(self, view: View, timeline: Timeline) -> Vote:
        proposal = view.proposal
        self._promised_clock = None
        if proposal is None:
            return Vote()
        # One that joins has begun no step yet, and is asked as well.
        steps = (max(self._begun, view.start_step), max(proposal.clock, view.start_step))
        if not any(timeline.at(step).slices_of(self._name) for step in steps):
            return Vote()
        if self._begun >= proposal.clock:
            return Vote(refused=proposal.number)
        self._promised_clock = proposal.clock
        return Vote(accepted=proposal.number)

    @property
    def view(self) -> View | None:
        """The newest."""
        with self._changed:
            return self._view

    @property
    def timeline(self) -> Timeline:
        """Of the newest view.

        Raises:
            RuntimeError: none has come.
        """
        with self._changed:
            if self._timeline is None:
                raise RuntimeError("no view has come yet")
            return self._timeline

    def wait(self, ready: Callable[[View], bool], timeout_seconds: float) -> View | None:
        """Wait for a view of which `ready` holds; None if none came in time, or the worker was expelled."""
        with self._changed:
            self._wait(lambda: self._expelled() or (self._view is not None and ready(self._view)), timeout_seconds)
            view = self._view
            return view if view is not None and ready(view) and not self._expelled() else None

    def begin(self, step: int, generation: int) -> Turn:
        """Begin a step of a generation, or say why not; waits as long as a promise or a barrier demands."""
        with self._changed:
            turn = self._turn(step, generation)
            if turn is None:
                began = self._clock()
                self._wait(lambda: self._turn(step, generation) is not None, self._patience_seconds)
                self.waited_seconds += self._clock() - began
                turn = self._turn(step, generation) or Turn.SILENT
            if turn is Turn.GO:
                self._begun = step
            return turn

    def _wait(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait for a view that makes `ready` true; looks up now and then, as an expulsion comes without a view."""
        deadline = time.monotonic() + timeout_seconds
        while not ready() and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(min(left, _LOOK_UP_SECONDS))

    def may_begin(self, step: int, generation: int) -> bool:
        """Whether `begin` would let this step begin now."""
        with self._changed:
            return self._turn(step, generation) is Turn.GO

    def _turn(self, step: int, generation: int) -> Turn | None:
        """None: to wait."""
        view, timeline = self._view, self._timeline
        if self._expelled():
            return Turn.EXPELLED
        if view is None or timeline is None:
            return None
        if view.phase is Phase.FAILED:
            return Turn.FAILED
        if view.generation != generation:
            return Turn.ENTER
        return self._turn_in_generation(step, view, timeline)

    def _turn_in_generation(self, step: int, view: View, timeline: Timeline) -> Turn | None:
        halts_at = timeline.halts_at()
        if (halts_at is not None and step >= halts_at) or not timeline.at(step).slices_of(self._name):
            return Turn.LEAVE
        promised = self._promised_clock is not None and step >= self._promised_clock
        barred = any(c.barrier and step >= c.clock and view.committed < c.number for c in view.changes)
        return None if promised or barred else Turn.GO
