"""Runner of experiments: finds out which tasks a figure needs, has those done that no earlier run did, and reads them.

Tasks come in three stages, as a policy is judged after it learned, and learns after its warm start. Those of one stage
run side by side; how many at a time changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policy_net.laboratory.reproduction.experiment import (
    Experiment,
    ExperimentLine,
    Measure,
    Point,
    PolicyTraining,
    Scale,
)
from policy_net.laboratory.reproduction.tasks import Imitating, Judging, Learning, Task, do_task, is_done, result_of
from policy_net.laboratory.task_processes import TaskProcesses, Unanswered

LONGEST_TASK_SECONDS = 24 * 3600.0
"""A training takes minutes; what takes a day hangs."""


@dataclass(frozen=True)
class ExperimentRunner:
    """Runs experiments of one catalogue.

    Attributes:
        catalogue: all experiments, as how often a shared training is judged must not depend on which are run.
        seed: of the first training.
        on_task: gets how many tasks of a stage were done, and of how many: 0 at its beginning, then each.
    """

    catalogue: Sequence[Experiment]
    folder: Path
    scale: Scale
    seed: int
    processes: TaskProcesses[Task, None]
    on_task: Callable[[str, int, int], None] = lambda _stage, _done, _total: None

    def run(self, experiment: Experiment) -> list[Point]:
        """Have everything done that its lines need; a point for each line.

        Raises:
            TaskFailed: a task ended by an error that nobody expects.
        """
        by_line = [self._judging(line, experiment) for line in experiment.lines]
        judging = [task for tasks in by_line for task in tasks]
        learned = [task.policy for task in judging if isinstance(task.policy, Learning)]
        imitated = [task.policy for task in judging if isinstance(task.policy, Imitating)]
        lost: dict[str, str] = {}
        for stage, tasks in (
            ("warm starts", [*(task.start for task in learned), *imitated]),
            ("trainings", learned),
            ("judging", judging),
        ):
            self._do(f"{experiment.name}, {stage}", [task for task in tasks if not _needs(task, lost)], lost)
        return [self._point(line, tasks, lost) for line, tasks in zip(experiment.lines, by_line, strict=True)]

    def trained_shares_of(self, training: PolicyTraining) -> tuple[float, ...]:
        """Shares of its updates after which any line of the catalogue judges this training."""
        lines = [line for experiment in self.catalogue for line in experiment.lines]
        return tuple(
            sorted(
                {line.trained_share for line in lines if self._training(line) == training and line.trained_share > 0.0}
            )
        )

    def _judging(self, line: ExperimentLine, experiment: Experiment) -> list[Judging]:
        training = self._training(line)
        common = (line.trained_share, line.judged, self.scale, experiment.timeline_of)
        if training is None:
            return [Judging(self.folder, str(line.policy), *common)]
        tasks = []
        for seed in range(self.seed, self.seed + self.scale.seeds):
            policy: Imitating | Learning = Imitating(self.folder, training, self.scale, seed)
            if line.trained_share > 0.0:
                policy = Learning(self.folder, training, self.scale, seed, self.trained_shares_of(training))
            tasks.append(Judging(self.folder, policy, *common))
        return tasks

    def _training(self, line: ExperimentLine) -> PolicyTraining | None:
        if isinstance(line.policy, str):
            return None
        return replace(line.policy, world=line.judged) if self.scale.trains_in_judged_world else line.policy

    def _do(self, stage: str, tasks: Sequence[Task], lost: dict[str, str]) -> None:
        """Do what is not done yet; what lost its process is noted, and tried again by the next run."""
        missing = list({task.name: task for task in tasks if not is_done(task)}.values())
        if missing:  # before the first, which may take long, it is known what goes on
            self.on_task(stage, 0, len(missing))
        for done, (index, answer) in enumerate(self.processes.answers(missing), start=1):
            if isinstance(answer, Unanswered):
                lost[missing[index].name] = answer.reason
            self.on_task(stage, done, len(missing))

    def _point(self, line: ExperimentLine, tasks: Sequence[Judging], lost: dict[str, str]) -> Point:
        by_seed: dict[Measure, list[list[float]]] = {measure: [] for measure in Measure}
        failures, is_lost = [], False
        timeline: tuple[tuple[float, int, int], ...] = ()
        for task in tasks:
            reason = _needs(task, lost) or lost.get(task.name)
            is_lost = is_lost or reason is not None
            result: dict[str, Any] = {"failure": reason} if reason else result_of(self.folder, task.name)
            if "failure" in result:
                failures.append(str(result["failure"]))
                continue
            for measure in Measure:
                by_seed[measure].append(result[measure])
            timeline = timeline or tuple((time, workers, ps) for time, workers, ps in result.get("timeline", ()))
        return Point(line.label, line.at, by_seed, tuple(failures), timeline, is_lost)


def crew(processes: int) -> TaskProcesses[Task, None]:
    """Processes that do tasks. Raises BadInput if there are fewer cores."""
    return TaskProcesses(processes, do_task, LONGEST_TASK_SECONDS, name="reproduction")


def _needs(task: Task, lost: dict[str, str]) -> str | None:
    """Why a task cannot be done: what it builds upon was lost."""
    if isinstance(task, Learning):
        return lost.get(task.start.name)
    if isinstance(task, Judging) and not isinstance(task.policy, str):
        return lost.get(task.policy.name) or _needs(task.policy, lost)
    return None
