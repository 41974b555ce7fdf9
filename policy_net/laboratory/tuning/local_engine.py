"""Local engine: trials in processes of this machine, each on one core, which end with the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from policy_net.laboratory.task_processes import TaskFailed, TaskProcesses, Unanswered
from policy_net.laboratory.tuning.engine import LONGEST_TRIAL_SECONDS, TrialFailed, Work
from policy_net.laboratory.tuning.trial import TrialReport, TrialTask, run_trial


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
