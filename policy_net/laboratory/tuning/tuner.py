"""Tuner: batches of trials until there are enough, then the best settings against the default ones once more.

All trials of a batch are proposed before one of them ends, so which trials there are follows from the seed and the size
of batches, and not from how many run at a time, nor from who is quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policy_net.laboratory.tuning.comparing import JctChange, best_of, confirmation
from policy_net.laboratory.tuning.engine import Engine
from policy_net.laboratory.tuning.space import Space
from policy_net.laboratory.tuning.study_file import StudyFile, Trial, propose
from policy_net.laboratory.tuning.trial import Budget, TrialTask
from policy_net.laboratory.tuning.worlds import TuningWorlds, WorldPart

CONFIRMING_SEEDS = 2
"""Trainings of the best settings, and of the default ones, that confirm."""
CONFIRMING_TIMES = 2
"""So many times more worlds judge than chose."""


@dataclass(frozen=True)
class StudyPlan:
    """What a study does, `batch` trials at a time; where it `confirms`, the best settings are then judged once more."""

    space: Space
    worlds: TuningWorlds
    budget: Budget
    seed: int
    batch: int
    confirms: bool = True

    @property
    def confirming_seeds(self) -> tuple[int, ...]:
        """Seeds of training that no trial had."""
        return tuple(self.seed + 1 + number for number in range(CONFIRMING_SEEDS))


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What a study has come to; `confirmed` is the change under other seeds on other worlds, where that was found."""

    trials: tuple[Trial, ...]
    best: Trial | None
    confirmed: JctChange | None


def tune(
    plan: StudyPlan,
    study: StudyFile,
    engine: Engine,
    trials: int,
    *,
    is_over: Callable[[], bool] = lambda: False,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> StudyOutcome:
    """Go on with a study until it has so many trials in all.

    Args:
        is_over: whether no further trial is begun.
        on_trial: gets every trial that ended, those that had ended before included.

    Raises:
        StudyNotWritten: see `StudyFile`.
        ExpectedError: see `Engine`.
    """
    for trial in study.trials():
        if trial.report is not None:
            on_trial(trial)
    while not is_over() and (batch := _next_batch(plan, study, trials)):
        first = batch[0].number - batch[0].number % plan.batch
        earlier = study.trials()[:first]
        tasks = [_task(plan, trial, earlier) for trial in batch]
        for index, report in engine.reports(tasks):
            study.end(batch[index].number, report)
            on_trial(Trial(batch[index].number, batch[index].values, report))
    found = study.trials()
    best = best_of(found)
    return StudyOutcome(tuple(found), best, _confirm(plan, study, engine, best, is_over))


def _next_batch(plan: StudyPlan, study: StudyFile, most: int) -> list[Trial]:
    """The trials that are under way or to be begun in the first batch that has some; none if all have ended."""
    found = study.trials()
    open_ones = [trial for trial in found if trial.report is None]
    first = open_ones[0].number if open_ones else len(found)
    first -= first % plan.batch
    known = [(trial.values, trial.report) for trial in found[:first] if trial.report is not None]
    under_way = [trial.values for trial in found[first:]]
    batch = [trial for trial in found[first:] if trial.report is None]
    for _ in range(len(found), min(first + plan.batch, most)):
        values = propose(plan.space, plan.seed, known, under_way)
        batch.append(Trial(study.begin(values), values, None))
        under_way.append(values)
    return batch


def _task(plan: StudyPlan, trial: Trial, earlier: Sequence[Trial]) -> TrialTask:
    whole = [one.report for one in earlier if one.report is not None and one.report.failure is None]
    return TrialTask(
        plan.worlds,
        plan.space,
        plan.budget,
        trial.values,
        plan.seed,
        WorldPart.CHOOSING,
        tuple(report.scores for report in whole if not report.given_up),
        can_be_given_up=trial.number > 0,
    )


def _confirm(
    plan: StudyPlan, study: StudyFile, engine: Engine, best: Trial | None, is_over: Callable[[], bool]
) -> JctChange | None:
    if best is None or best.number == 0 or not plan.confirms:
        return None
    confirmed = study.confirmed()
    missing = [
        (number, seed)
        for seed in plan.confirming_seeds
        for number in (0, best.number)
        if (number, seed) not in confirmed
    ]
    if missing and is_over():
        return None
    values = {0: plan.space.defaults, best.number: best.values}
    budget = Budget(plan.budget.steps, 1, CONFIRMING_TIMES * plan.budget.worlds)
    tasks = [
        TrialTask(plan.worlds, plan.space, budget, values[number], seed, WorldPart.JUDGING) for number, seed in missing
    ]
    for index, report in engine.reports(tasks):
        if report.failure is None:
            study.confirm(*missing[index], report.by_world)
    return confirmation(best.number, plan.confirming_seeds, study.confirmed())
