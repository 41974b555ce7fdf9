"""Processes of this machine that do one task after another, each on one core, and end with the program."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from foundation.clocks import AwakeClock
from foundation.errors import ExpectedError
from foundation.kinship import die_with_parent
from policy_net.errors import BadInput, PolicyNetError

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_SINGLE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_POLL_SECONDS = 5.0
_END_SECONDS = 10.0


class TaskFailed(PolicyNetError):
    """A task ended by an error that nobody expects; the message says which."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """What there is of a task whose process was killed, or that took too long."""

    reason: str


class TaskProcesses(Generic[Task, Answer]):
    """Does tasks, several at a time.

    Args:
        work: what a process does with a task; it is sent by its name.
        longest_seconds: of a task.
        clock: seconds in which this process ran; a task that was stopped with it got nothing done.

    Raises:
        BadInput: there are fewer cores than processes.
    """

    def __init__(
        self,
        processes: int,
        work: Callable[[Task], Answer],
        longest_seconds: float,
        clock: Callable[[], float] | None = None,
        name: str = "task",
    ) -> None:
        cores = usable_cores()
        if processes > cores:
            raise BadInput(
                f"--processes {processes}: this machine has {cores} cores for this program; use at most {cores}"
            )
        self._clock, self._longest_seconds = clock or AwakeClock(2 * _POLL_SECONDS), longest_seconds
        self._workers = [_Worker(work, name) for _ in range(processes)]

    def answers(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Answer | Unanswered]]:
        """Do all tasks; each one's index and answer, in the order in which they end.

        Raises:
            ExpectedError: that a task raised.
            TaskFailed: a task raised any other error.
        """
        waiting = deque(enumerate(tasks))
        left = len(tasks)
        while left:
            for worker in self._workers:
                if worker.index is None and waiting:
                    index, task = waiting.popleft()
                    worker.begin(index, task, self._clock() + self._longest_seconds)
            busy = [worker for worker in self._workers if worker.index is not None]
            wait([worker.connection for worker in busy], timeout=_POLL_SECONDS)
            for worker in busy:
                answer = worker.answer(self._clock())
                if answer is not None:
                    left -= 1
                    yield answer

    def close(self) -> None:
        """End what still runs; once is enough."""
        for worker in self._workers:
            worker.end()


class _Worker:
    """One process, begun when there is something to do; `index` is that of its task, None if it does none."""

    def __init__(self, work: Callable[[Any], Any], name: str) -> None:
        self._work, self._name = work, name
        self._process: BaseProcess | None = None
        self.index: int | None = None
        self.connection: Connection[Any, Any]
        self._deadline = 0.0

    def begin(self, index: int, task: Any, deadline: float) -> None:
        if self._process is None or not self._process.is_alive():
            self.end()
            self._start()
        self.index, self._deadline = index, deadline
        with suppress(BrokenPipeError):  # it was killed meanwhile, which `answer` finds out
            self.connection.send(task)

    def answer(self, now: float) -> tuple[int, Any] | None:
        """The task's index and what became of it; None while it runs."""
        assert self.index is not None  # noqa: S101  (only busy workers are asked; narrows the type)
        index = self.index
        if not self.connection.poll():
            if now < self._deadline:
                return None
            self.end()
            return index, Unanswered("it did not end in time")
        try:
            answered, raised = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return index, Unanswered(self._death())
        self.index = None
        if isinstance(raised, ExpectedError):
            raise raised
        if raised is not None:
            raise TaskFailed(f"a task ended by {raised}")
        return index, answered

    def end(self) -> None:
        """Kill the process."""
        self.index = None
        if self._process is None:
            return
        self._process.kill()
        self._process.join(_END_SECONDS)
        self.connection.close()
        self._process = None

    def _start(self) -> None:
        spawned = multiprocessing.get_context("spawn")
        self.connection, theirs = spawned.Pipe()
        self._process = spawned.Process(
            target=_serve, args=(theirs, self._work, os.getpid()), name=self._name, daemon=True
        )
        with _single_threads():
            self._process.start()
        theirs.close()

    def _death(self) -> str:
        process = self._process
        assert process is not None  # noqa: S101  (it had a task; narrows the type)
        process.join(_END_SECONDS)
        code = process.exitcode
        self.end()
        if code is None or code >= 0:
            return f"its process ended with {code}"
        return f"its process was ended by {signal.Signals(-code).name}; there may be too little memory"


def usable_cores() -> int:
    """Cores that this program may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(connection: Connection[Any, Any], work: Callable[[Any], Any], parent: int) -> None:
    """Do task after task, until nobody asks any more."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends this one
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        answered: Any = None
        raised: ExpectedError | str | None = None
        try:
            answered = work(task)
        except ExpectedError as error:
            raised = error
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
        connection.send((answered, raised))


@contextmanager
def _single_threads() -> Iterator[None]:
    """Give numeric libraries of a process that is begun here one thread each."""
    before = {name: os.environ.get(name) for name in _SINGLE}
    os.environ.update(dict.fromkeys(_SINGLE, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
