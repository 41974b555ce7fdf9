"""Engine of trials: what runs several at a time, somewhere, and gives each one's report.

An engine decides where and when, and nothing else: what a trial comes to follows from its task. Every engine passes
the suite in `tests/contracts/engine_suite.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from policy_net.errors import PolicyNetError
from policy_net.laboratory.task_processes import TaskFailed, TaskProcesses, Unanswered
from policy_net.laboratory.tuning.trial import TrialReport, TrialTask, run_trial

Work = Callable[[TrialTask], TrialReport]
"""What an engine does with a task; it is sent to other processes by its name."""

LONGEST_TRIAL_SECONDS = 24 * 3600.0
"""A trial takes minutes; what takes a day hangs."""


class TrialFailed(PolicyNetError):
    """A trial ended by an error that is no property of its settings; the study stops, and can go on."""


class Engine(Protocol):
    """Runs trials; a context manager's end, or `close`, ends what still runs."""

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        """Run all tasks; each one's index and report, in the order in which they end.

        A trial whose process is killed, or that takes a day, has a report with a failure.

        Raises:
            ExpectedError: that a trial raised, such as BadInput for a file that is gone.
            TrialFailed: a trial ended by any other error.
        """
        ...

    def close(self) -> None:
        """End what still runs; once is enough."""
        ...


# Local engine: trials in processes of this machine, each on one core, which end with the program.


class LocalEngine:
    """An `Engine` on this machine.

    Args:
        processes: how many trials run at a time.
        work: what a process does with a task; it is sent by its name.
        clock: see `TaskProcesses`.
        longest_seconds: of a trial.

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
        try:
            for index, answer in self._processes.answers(tasks):
                yield index, TrialReport(failure=answer.reason) if isinstance(answer, Unanswered) else answer
        except TaskFailed as error:
            raise TrialFailed(f"a trial ended by {error}") from error

    def close(self) -> None:
        """See `Engine`."""
        self._processes.close()
