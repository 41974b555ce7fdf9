"""Local engine: trials in processes of this machine, each on one core, which end with the program.

A process does one trial after another, so that what all of them need is loaded and made once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from foundation.errors import ExpectedError
from foundation.kinship import die_with_parent
from policy_net.errors import BadInput
from policy_net.laboratory.tuning.engine import LONGEST_TRIAL_SECONDS, TrialFailed, Work
from policy_net.laboratory.tuning.trial import TrialReport, TrialTask, run_trial

_SINGLE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_LOOK_SECONDS = 5.0
_END_SECONDS = 10.0


class LocalEngine:
    """An `Engine` on this machine.

    Args:
        processes: how many trials run at a time.
        work: what a process does with a task; it is sent by its name.
        clock: monotonic seconds.
        longest_seconds: of a trial.

    Raises:
        BadInput: there are fewer cores.
    """

    def __init__(
        self,
        processes: int = 1,
        work: Work = run_trial,
        clock: Callable[[], float] = time.monotonic,
        longest_seconds: float = LONGEST_TRIAL_SECONDS,
    ) -> None:
        cores = usable_cores()
        if processes > cores:
            raise BadInput(
                f"--processes {processes}: this machine has {cores} cores for this program; use at most {cores}"
            )
        self._clock, self._longest_seconds, self._work = clock, longest_seconds, work
        self._workers = [_Worker(work) for _ in range(processes)]

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        """See `Engine`."""
        waiting = deque(enumerate(tasks))
        left = len(tasks)
        while left:
            for worker in self._workers:
                if worker.index is None and waiting:
                    index, task = waiting.popleft()
                    worker.begin(index, task, self._clock() + self._longest_seconds)
            busy = [worker for worker in self._workers if worker.index is not None]
            wait([worker.connection for worker in busy], timeout=_LOOK_SECONDS)
            for worker in busy:
                report = worker.report(self._clock())
                if report is not None:
                    left -= 1
                    yield report

    def close(self) -> None:
        """See `Engine`."""
        for worker in self._workers:
            worker.end()


class _Worker:
    """One process, which is begun when there is something to do.

    Attributes:
        index: of the task that it does; None if it does none.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._process: BaseProcess | None = None
        self.index: int | None = None
        self.connection: Connection[Any, Any]
        self._deadline = 0.0

    def begin(self, index: int, task: TrialTask, deadline: float) -> None:
        if self._process is None or not self._process.is_alive():
            self.end()
            self._start()
        self.index, self._deadline = index, deadline
        with suppress(BrokenPipeError):  # it was killed meanwhile, which `report` finds out
            self.connection.send(task)

    def report(self, now: float) -> tuple[int, TrialReport] | None:
        """The task's index and what became of it; None while it runs.

        Raises:
            ExpectedError: see `Engine.reports`.
        """
        assert self.index is not None  # noqa: S101  (only busy workers are asked; narrows the type)
        index = self.index
        if not self.connection.poll():
            if now < self._deadline:
                return None
            self.end()
            return index, TrialReport(failure="it did not end in time")
        try:
            said = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return index, TrialReport(failure=self._death())
        self.index = None
        if isinstance(said, ExpectedError):
            raise said
        if isinstance(said, str):
            raise TrialFailed(said)
        return index, said

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
            target=_serve, args=(theirs, self._work, os.getpid()), name="tuning", daemon=True
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


def _serve(connection: Connection[Any, Any], work: Work, parent: int) -> None:
    """What a process does: task after task, until nobody asks any more."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends this one
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            answer: Any = work(task)
        except ExpectedError as error:
            answer = error
        except Exception as error:
            answer = f"a trial ended by {type(error).__name__}: {error}"
        connection.send(answer)


@contextmanager
def _single_threads() -> Iterator[None]:
    """Numeric libraries of a process that is begun here have one thread each."""
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
