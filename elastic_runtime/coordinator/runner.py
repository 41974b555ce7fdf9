"""Runner of the state machine for many threads: one event at a time, journaled before it is published."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import structlog

from elastic_runtime.control.messages import JobStatus, RequestState
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.rules.checkpointing import ManifestOrder, Order, SearchOrder
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, EventOutcome
from elastic_runtime.errors import BadInput, ElasticError, ResizeFailed
from elastic_runtime.protocol.plan import View
from foundation.clocks import AwakeClock

_log = structlog.get_logger()
_T = TypeVar("_T")
MachineEvent = Callable[[CoordinatorMachine, float], tuple[_T, EventOutcome]]
"""Calls a method of the machine with the time; a result for the caller, and what follows from the event."""
_FULL = "the disk with the coordinator's journal is full"


class CoordinatorRunner:
    """A machine, its journal, its checkpoints, and those who wait for views."""

    def __init__(
        self, machine: CoordinatorMachine, journal: Journal, checkpoints: CheckpointStore, clock: AwakeClock
    ) -> None:
        self._machine, self._journal, self._checkpoints, self._clock = machine, journal, checkpoints, clock
        self.failure: Exception | None = None
        self._missed_seconds = clock.missed_seconds
        lock = threading.RLock()
        self._published = threading.Condition(lock)
        self._ordered = threading.Condition(lock)
        self._view: View | None = None
        self._unpublished: View | None = None
        self.closed = False
        self._waiting: list[Order] = []
        self._orders: list[Order] = []
        with self._published:
            self._carry_out(machine.on_tick(clock()))
        self._thread = threading.Thread(target=self._obey, name="checkpoints", daemon=True)
        self._thread.start()

    def run(self, event: MachineEvent[_T], when_full: str = "") -> _T:
        """Handle an event of the machine; its result.

        Args:
            when_full: why an event that has to be remembered is refused while the disk is full; empty: it is not.

        Raises:
            BadInput: the machine refuses the event.
            ResizeFailed: the disk is full, and `when_full` says why that matters.
        """
        with self._event():
            result, outcome = event(self._machine, self._clock())
            if not self._carry_out(outcome) and when_full:
                raise ResizeFailed(f"{_FULL}: {when_full}")
            return result

    def on_request(self, request: RequestState, epoch: int = 0) -> RequestState:
        """Take a scheduler's request, as `CoordinatorMachine.on_request`.

        Raises:
            BadInput: the request is refused.
            ResizeFailed: the disk is full, and nothing could be remembered of it.
        """
        with self._event():
            if self._journal.full:
                raise ResizeFailed(f"{_FULL}: training goes on, no request is taken; make room")
            return self.run(
                lambda machine, now: machine.on_request(request, now, epoch),
                when_full="ask again with the same id when there is room",
            )

    @property
    def view_number(self) -> int:
        """Number of the newest view; 0 before the first. Read without the lock: no report waits for a journal."""
        view = self._view
        return view.number if view is not None else 0

    def on_tick(self) -> None:
        """Let time pass."""
        with self._event():
            now, missed_seconds = self._clock(), self._clock.missed_seconds
            gap_seconds, self._missed_seconds = missed_seconds - self._missed_seconds, missed_seconds
            self._carry_out(self._machine.on_tick(now, gap_seconds))

    def status(self) -> JobStatus:
        """See `CoordinatorMachine.status`."""
        with self._published:
            return self._machine.status(self._clock())

    def next_view(self, after: int, timeout_seconds: float) -> View | None:
        """The newest view, once it is newer than number `after`; None if none is in time, or at the end."""
        with self._published:
            self._published.wait_for(lambda: self.closed or self._newer(after), timeout_seconds)
            return self._view if self._newer(after) and not self.closed else None

    def close(self) -> None:
        """Wake everybody who waits; no more events."""
        with self._published:
            self.closed = True
            self._published.notify_all()
            self._ordered.notify_all()
        self._thread.join(10.0)

    def _newer(self, after: int) -> bool:
        return self._view is not None and self._view.number > after

    @contextlib.contextmanager
    def _event(self) -> Iterator[None]:
        """One event at a time. Whatever goes wrong, but for a refusal, ends this coordinator.

        What the disk or the state hold is not known then: nothing more is published, and the process is started again.
        """
        with self._published:
            if self.failure is not None:
                raise self.failure
            try:
                yield
            except (BadInput, ResizeFailed):
                raise
            except Exception as error:
                self.failure = error
                raise

    def _carry_out(self, outcome: EventOutcome) -> bool:
        """Journal, then publish. While the disk is full the newest view waits, and so do the orders."""
        if outcome.view is not None:
            self._unpublished = outcome.view
        self._waiting += outcome.orders
        if not self._journal.append(outcome.record):
            return False
        if self._unpublished is not None:
            self._view, self._unpublished = self._unpublished, None
            self._published.notify_all()
        if self._waiting:
            self._orders, self._waiting = self._orders + self._waiting, []
            self._ordered.notify_all()
        self._journal.cut(self._machine.state)
        return True

    def _obey(self) -> None:
        """Carry out orders in a thread of its own, as they take as long as the disk takes."""
        while not self.closed:
            with self._ordered:
                self._ordered.wait_for(lambda: self.closed or bool(self._orders))
                orders, self._orders = self._orders, []
            for order in orders:
                try:
                    if isinstance(order, SearchOrder):
                        self._search(order)
                    else:
                        self._complete(order)
                except Exception as problem:
                    with self._published:
                        self.failure = self.failure or problem
                    raise

    def _search(self, order: SearchOrder) -> None:
        search, error = None, ""
        try:
            search = self._checkpoints.search(order)
        except ElasticError as problem:
            error = str(problem)
        self.run(lambda machine, now: (None, machine.on_checkpoint_searched(order, search, error, now)))

    def _complete(self, order: ManifestOrder) -> None:
        error = ""
        try:
            self._checkpoints.complete(order)
        except ElasticError as problem:
            error = str(problem)
        self.run(lambda machine, now: (None, machine.on_checkpoint_completed(order, error, now)))
        if error:
            return
        try:
            self._checkpoints.tidy(order.protected)
        except ElasticError as problem:
            _log.warning("checkpoint-not-removed", error=str(problem))
