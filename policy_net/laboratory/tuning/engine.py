"""Engine of trials: what runs several at a time, somewhere, and gives each one's report.

An engine decides where and when, and nothing else: what a trial comes to follows from its task. Every engine passes
the suite in `tests/contracts/engine_suite.py`.
"""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

from foundation.errors import ExpectedError
from policy_net.errors import BadInput
from policy_net.laboratory.task_processes import TaskFailed, TaskProcesses, Unanswered
from policy_net.laboratory.tuning.study_file import TrialReport
from policy_net.laboratory.tuning.trial import TrialTask, run_trial

Work = Callable[[TrialTask], TrialReport]
"""What an engine does with a task; it is sent to other processes by its name."""

LONGEST_TRIAL_SECONDS = 24 * 3600.0
"""A trial takes minutes; what takes a day hangs."""


class Engine(Protocol):
    """Runs trials; a context manager's end, or `close`, ends what still runs."""

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        """Run all tasks; each one's index and report, in the order in which they end.

        A trial whose process is killed, or that takes a day, has a report with a failure.

        Raises:
            ExpectedError: that a trial raised, such as BadInput for a file that is gone.
            TaskFailed: a trial ended by any other error.
        """
        ...

    def close(self) -> None:
        """End what still runs; once is enough."""
        ...


class LocalEngine:
    """An `Engine` in processes of this machine; see `TaskProcesses`.

    Raises:
        BadInput: there are fewer cores.
    """

    def __init__(
        self,
        processes: int = 1,
        work: Work = run_trial,
        clock: Callable[[], float] | None = None,
        longest_seconds: float = LONGEST_TRIAL_SECONDS,
    ) -> None:
        self._processes = TaskProcesses(processes, work, longest_seconds, clock, name="tuning")

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        """See `Engine`."""
        for index, answer in self._processes.answers(tasks):
            yield index, TrialReport(failure=answer.reason) if isinstance(answer, Unanswered) else answer

    def close(self) -> None:
        """See `Engine`."""
        self._processes.close()


ADDRESS = "RAY_ADDRESS"
ANSWER_SECONDS = 10.0
"""Longest wait for a connection to a cluster that is named; Ray itself tries for minutes."""
_NAMED = re.compile(r"(?:ray://)?(?P<host>[^:/]+):(?P<port>\d{1,5})")


class RayEngine:
    """An `Engine` on a Ray cluster, each trial on one of its cores.

    Every machine has fedl2 in the same version, and the files that a study names under the same names. Ray reads its
    cluster's address from RAY_ADDRESS; without one, it takes the cluster that `ray start` began on this machine, or
    starts one that ends with the program. Numeric libraries have one thread each there, as Ray sets it for one core.

    Args:
        processes: how many trials run at a time, on all machines together.
        longest_seconds: without any trial's end.
        environment: of the program, which Ray reads too.

    Raises:
        BadInput: Ray is not installed, or its cluster does not answer.
    """

    def __init__(
        self,
        processes: int = 1,
        work: Work = run_trial,
        longest_seconds: float = LONGEST_TRIAL_SECONDS,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        try:
            self._ray: Any = import_module("ray")
        except ImportError as error:
            raise BadInput("--engine ray: Ray is not installed; run pip install 'fedl2[ray]'") from error
        check_answers(environment.get(ADDRESS, ""))
        self._processes, self._longest_seconds = processes, longest_seconds
        try:
            self._ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray raises bare ones, such as where a busy machine starts it too slowly
            raise BadInput(f"--engine ray: its cluster does not answer ({error}); look at {ADDRESS}") from error
        # A machine that is lost is no property of the settings: Ray tries a trial again, which comes to the same.
        self._remote = self._ray.remote(num_cpus=1, max_retries=3)(work)

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        """See `Engine`."""
        waiting = deque(enumerate(tasks))
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._processes:
                    index, task = waiting.popleft()
                    running[self._remote.remote(task)] = index
                done, _ = self._ray.wait(list(running), num_returns=1, timeout=self._longest_seconds)
                for reference in done or list(running):
                    index = running.pop(reference)
                    yield index, self._report(reference) if done else self._late(reference)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        """See `Engine`."""
        self._ray.shutdown()

    def _report(self, reference: Any) -> TrialReport:
        try:
            return self._ray.get(reference)  # type: ignore[no-any-return]  # Ray is not there when types are checked
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ExpectedError):
                raise cause from error
            raise TaskFailed(f"a task ended by {type(cause).__name__}: {cause}") from error
        except self._ray.exceptions.RayError as error:
            return TrialReport(failure=f"its process ended ({type(error).__name__}); there may be too little memory")

    def _late(self, reference: Any) -> TrialReport:
        self._ray.cancel(reference, force=True)
        return TrialReport(failure="it did not end in time")


def check_answers(address: str, wait_seconds: float = ANSWER_SECONDS) -> None:
    """Refuse a cluster to which there is no connection; what names no machine and port is Ray's to read.

    Raises:
        BadInput: nobody listens there.
    """
    named = _NAMED.fullmatch(address)
    if named is None:
        return
    try:
        socket.create_connection((named["host"], int(named["port"])), wait_seconds).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"--engine ray: no cluster answers at {ADDRESS}={address} ({reason}); start one, or leave {ADDRESS} out"
        ) from error
