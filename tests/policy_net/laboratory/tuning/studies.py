"""Studies without any training: a trial's scores follow from its values at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from policy_net.laboratory.commands.tune import OptionsLoader
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.tuning.space import Space, space_of
from policy_net.laboratory.tuning.study_file import StudyFile, Trial, TrialReport, is_given_up
from policy_net.laboratory.tuning.trial import Budget, TrialTask
from policy_net.laboratory.tuning.tuner import StudyPlan
from policy_net.laboratory.tuning.worlds import TuningWorlds, WorldPart

SPACE = space_of("set", ["neurons", "pairs", "trust_radius", "learning_rate"])
BUDGET = Budget(steps=3, rungs=3, worlds=3)
IDENTITY = {"seed": 5, "batch": 4}


def plan(batch: int = 4, space: Space = SPACE) -> StudyPlan:
    return StudyPlan(space, TuningWorlds(OptionsLoader(WorldOptions()), ("dl2:jobs=3",), {}), BUDGET, 5, batch)


def opened(folder: Path, space: Space = SPACE, **identity: object) -> StudyFile:
    return StudyFile(folder, space, IDENTITY | identity)


def scored(task: TrialTask) -> TrialReport:
    """A bowl: best at a radius of 2; small steps fail; other seeds and worlds differ a little."""
    radius, rate = float(task.values["trust_radius"]), float(task.values["learning_rate"])
    if rate < 0.03:
        return TrialReport(failure="the weights became infinite")
    loss = 10.0 + abs(np.log(radius / 2.0)) + (0.01 if task.part is WorldPart.JUDGING else 0.0)
    scores: list[float] = []
    for rung in range(task.budget.rungs):
        scores.append(float(loss + 1.0 / (rung + 1)))
        last = rung + 1 == task.budget.rungs
        if task.can_be_given_up and not last and is_given_up(task.earlier, scores):
            return TrialReport(tuple(scores), (scores[-1],) * task.budget.worlds, given_up=True)
    worlds = np.random.default_rng(task.seed).normal(scale=0.01, size=task.budget.worlds)
    return TrialReport(tuple(scores), tuple((scores[-1] + worlds).tolist()))


class FakeEngine:
    """An engine that ends a batch's trials in any order; it counts them."""

    def __init__(self, seed: int = 0, work: Callable[[TrialTask], TrialReport] = scored) -> None:
        self._generator = np.random.default_rng(seed)
        self._work = work
        self.begun = 0

    def reports(self, tasks: Sequence[TrialTask]) -> Iterator[tuple[int, TrialReport]]:
        for index in self._generator.permutation(len(tasks)).tolist():
            self.begun += 1
            yield index, self._work(tasks[index])

    def close(self) -> None:
        """Nothing runs."""


def facts(trials: Sequence[Trial]) -> list[tuple[int, dict[str, object], TrialReport | None]]:
    return [(trial.number, dict(trial.values), trial.report) for trial in trials]
