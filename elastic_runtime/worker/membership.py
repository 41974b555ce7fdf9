"""A worker's place in its job: its data plane, its connection to the coordinator, the newest view, and the way out.

A container gets SIGTERM before it is ended: the worker asks to be let go, and works until it is.

The step barrier is the place where the training loop and the coordinator's views meet. A control thread brings views
and gets the worker's votes; the training loop asks to begin steps, and waits where a promise or a barrier demands it.
Accepting and beginning happen under one lock, so that a clock is never overtaken. The rules are in
`protocol.step_turns`.

Source: DL2 §5 (the scaling clock).
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType

import structlog

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, TaskRole, Timeline, View
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


_JOIN_SECONDS = 5.0
_START_SECONDS = 600.0
"""Until the job's tasks are all there, or a new worker is named in a plan."""
PATIENCE_SECONDS = 300.0
"""Without a coordinator: for a proposal to be resolved, for leases, or for values that do not come."""
LEAVE_SECONDS = 5.0
"""For the coordinator to take the news of a script that raised, or that SIGTERM ended."""
_SIGNAL_SECONDS = 1.0
"""For the coordinator to hear of SIGTERM before a script's own handler, which may end the process, is called."""
_ENDED = {JobPhase.FINISHED, JobPhase.SUSPENDED}

_log = structlog.get_logger()


class Membership:
    """One worker, from its registration until it has left.

    Raises:
        ElasticError: the coordinator refuses this worker, or is not reached.
    """

    def __init__(
        self, environment: Mapping[str, str], layout: Layout, training: Training, clock: Callable[[], float]
    ) -> None:
        self.layout, self.training, self.clock = layout, training, clock
        self.environment = MemberEnvironment.read(environment)
        self.task = self.environment.task
        self.left = self._closed = False
        self._eviction: Eviction | None = None
        self.endpoint = self.environment.open_endpoint()
        try:
            self.link = self.environment.open_link(TaskRole.WORKER, clock)
        except BaseException:
            self.endpoint.close()
            raise
        self.barrier = StepBarrier(self.task, clock, PATIENCE_SECONDS, self.link.expelled.is_set)
        try:
            self.link.register(self.endpoint.address, layout.to_json(), training.to_json())
        except BaseException:
            self.close()
            raise

    def follow(
        self,
        vote: Callable[[View, Vote], None] | None = None,
        refresh: Callable[[MemberReport], MemberReport] | None = None,
    ) -> None:
        """Take views from now on, and answer SIGTERM.

        Args:
            vote: called in a control thread where a view asks for this worker's vote.
        """

        def receive(view: View) -> None:
            answer = self.barrier.on_view(view)
            if vote is not None and (answer.accepted or answer.refused):
                vote(view, answer)
            self.endpoint.wake()

        self.link.follow(receive, refresh)
        self._eviction = Eviction(
            lambda: self.link.report(draining=True), self.environment.grace_seconds, self._report_signal
        )

    def _report_signal(self) -> None:
        self.link.report(signalled=True)
        with contextlib.suppress(CoordinatorUnreachable):  # then it is told with the next report, if there is one
            self.link.flush(_SIGNAL_SECONDS)

    def view(self) -> View:
        """The newest view, waited for if none has come."""
        return self.barrier.view or self.wait_for(lambda _: True)

    def newer(self, view: View) -> View:
        """A newer view than this one, waited for."""
        return self.wait_for(lambda newer: newer.number > view.number)

    def wait_for(self, ready: Callable[[View], bool]) -> View:
        """Wait for a view of which `ready` holds.

        Raises:
            ElasticError: none came in time, or this worker is no member any more.
        """
        view = self.barrier.wait(ready, _START_SECONDS)
        self.check()
        if view is None:
            seconds = f"{_START_SECONDS:.0f} s"
            raise ElasticError(f"{self.task} was neither needed nor let go within {seconds}; see the job's status")
        return view

    def is_over(self, view: View) -> bool:
        """Whether the job is over, or suspended."""
        return view.phase in _ENDED

    def is_let_go(self, view: View) -> bool:
        """Whether the coordinator needs this worker no more."""
        return self.is_over(view) or self.task in view.leaving

    def check(self, waited_seconds: float = 0.0) -> None:
        """Whether this worker is still a member, and not left alone for too long.

        Args:
            waited_seconds: how long it has got nothing of what it needs.

        Raises:
            ElasticError: the connection to the coordinator is lost, or this worker was taken for dead.
            CoordinatorUnreachable: it has waited for long, and the coordinator was as long silent.
        """
        silent = self.link.coordinator_silent_seconds
        if waited_seconds >= PATIENCE_SECONDS and silent >= PATIENCE_SECONDS:
            raise self.unreachable()
        if self.link.failure is not None:
            raise self.link.failure
        if self.link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self.task} for dead; another worker computes its part")

    def unreachable(self) -> CoordinatorUnreachable:
        """The error of a worker that has waited long enough."""
        return self.environment.unreachable(self.link.coordinator_silent_seconds)

    @property
    def is_drained(self) -> bool:
        """Whether a handler of the script's own got SIGTERM."""
        return self._eviction is not None and self._eviction.is_noted

    def poll_signals(self) -> None:
        """See whether the script has set a handler for SIGTERM since."""
        if self._eviction is not None:
            self._eviction.poll()

    def leave(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Tell the coordinator that this worker is gone.

        Raises:
            CoordinatorUnreachable: it has not heard it by then.
        """
        self.link.report(left=True)
        self.link.flush(seconds)
        self.left = True

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        line = f"{self.task}: {type(error).__name__}: {error}"[:1000]
        self.link.report(failure=line, bad_input=isinstance(error, BadInput))
        self.link.flush(LEAVE_SECONDS)

    def close(self) -> None:
        """Give back sockets and threads; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._eviction is not None:
            self._eviction.close()
        self.link.close()
        self.endpoint.close()


class Eviction:
    """Answers SIGTERM until it is closed: the first asks, the second ends the process as if nobody answered.

    A script that handles SIGTERM itself, or trains in another thread than its main one, is left to itself. That its
    handler was called is noted: a script that ends then was drained, and has not failed.

    Args:
        ask: tells the coordinator that this worker wants to go; called in a thread.
        grace_seconds: how long to wait to be let go; then the process ends as by a second SIGTERM.
        report: tells the coordinator that the script's own handler is called; called in a thread.
    """

    def __init__(
        self, ask: Callable[[], None], grace_seconds: float, report: Callable[[], None] = lambda: None
    ) -> None:
        self._ask = ask
        self._report = report
        self._grace_seconds = grace_seconds
        self._process = os.getpid()
        self._leave_requested = self._closed = False
        # A handler may come upon any lock of its own thread: it only fills a queue made for that.
        self._news: queue.SimpleQueue[bool | threading.Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._theirs: Callable[[int, FrameType | None], object] | None = None
        self.is_noted = False
        in_main = threading.current_thread() is threading.main_thread()
        if in_main:
            self._thread = threading.Thread(target=self._wait, name="eviction", daemon=True)
            self._thread.start()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._take)
        self.poll()

    def poll(self) -> None:
        """Stand before a handler that the script has set, also since this was asked last; from the training thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler) and handler not in (self._take, self._note):
            self._theirs = handler
            signal.signal(signal.SIGTERM, self._note)

    def close(self) -> None:
        """SIGTERM does again what it did before."""
        self._closed = True
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and self._theirs is not None and signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, self._theirs)
        if self._thread is None:
            return
        if in_main and signal.getsignal(signal.SIGTERM) == self._take:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._news.put(False)
        self._thread.join(_JOIN_SECONDS)

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A child that was forked with this handler has no thread that would act on it.
        if self._leave_requested or self._closed or os.getpid() != self._process:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            self._leave_requested = True
            self._news.put(True)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """In the place of the script's handler, which may end the process at once."""
        if os.getpid() == self._process and not self.is_noted:
            self.is_noted, is_known = True, threading.Event()
            self._news.put(is_known)
            # What it tells by may be locked by what was interrupted here: then it waits in vain, and goes on.
            is_known.wait(_SIGNAL_SECONDS)
        if self._theirs is not None:
            self._theirs(number, frame)

    def _wait(self) -> None:
        while isinstance(news := self._news.get(), threading.Event):
            self._report()
            news.set()
        if not news:
            return
        _log.warning("drain-requested", grace_seconds=self._grace_seconds)
        self._ask()
        try:
            self._news.get(timeout=self._grace_seconds)
        except queue.Empty:
            _log.warning("drain-expired", waited_seconds=self._grace_seconds)
            os.kill(self._process, signal.SIGTERM)
