"""Trial: one training with some settings, scored now and then on worlds that it was not trained on.

A trial's task says everything that its scores follow from, so that it comes to the same in any process and on any
machine: also whether it is given up, which depends on trials of earlier batches alone. A score is the mean of the log
of average JCTs, so that every world counts alike; lower is better.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.training.imitation import Demonstrations, demonstrate, imitate, watch_in_turns
from policy_net.laboratory.training.offline import (
    FAILURES,
    Episode,
    check_finite,
    train_offline,
    until_stuck,
)
from policy_net.laboratory.training.set_training import begin, teach
from policy_net.laboratory.training.settings import Dl2Settings, SetSettings, SetTwinSettings
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.laboratory.tuning.space import Space, Values
from policy_net.laboratory.tuning.study_file import Scores, TrialReport, is_given_up
from policy_net.laboratory.tuning.worlds import TuningWorlds, WorldPart
from policy_net.learning.settings import ImitationSettings
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy, set_spec_of

DEMONSTRATED_EPISODES = 8
MICRO_STATES = 30_000
"""A trial is short: it sees a fifth of what a training demonstrates, in a fifth of the time."""

Rung = Callable[[Callable[[], SchedulerPolicy]], None]
"""Scores a policy that is made anew for every world."""
Made = TypeVar("Made")


JOBS_A_STEP = 16_000
"""Replayed jobs of a step, the same whatever the settings: 32 replays of 500 jobs."""
SMALLEST_REPLAY = 100
"""Jobs that a replay of fewer counts as: it has a beginning and an end, too."""
WORLDS_OF_A_SOURCE = 64
"""That windows are drawn from: speeds are drawn for every window anew, and a recording takes long to read."""


def twin_updates(steps: int, settings: SetTwinSettings, jobs: Sequence[int]) -> int:
    """Updates in a twin that cost as much as so many steps; `jobs` are of a workload of each source."""
    of_a_replay = sum(max(SMALLEST_REPLAY, min(settings.window_jobs, count)) for count in jobs) / len(jobs)
    return round(steps * JOBS_A_STEP / (2 * settings.pairs * of_a_replay))


class TaughtWindows:
    """Windows that trials of one seed are taught with; `jobs` has the number of jobs of a workload of each source."""

    def __init__(self, worlds: TuningWorlds, seed: int) -> None:
        self._worlds, self._seed = worlds, seed
        self._read: dict[int, TwinWindow] = {}
        self.jobs = tuple(len(self._numbered(number).workload.jobs) for number in range(len(worlds.sources)))

    def draw(self, generator: np.random.Generator) -> TwinWindow:
        """Any of them; sources are as likely as each other."""
        return self._numbered(int(generator.integers(WORLDS_OF_A_SOURCE * len(self._worlds.sources))))

    def _numbered(self, number: int) -> TwinWindow:
        if number not in self._read:
            loader = self._worlds.loader
            episode = self._worlds.training(self._seed, number)
            self._read[number] = TwinWindow(*episode, loader.speeds(), loader.placement_effect())
        return self._read[number]


@dataclass(frozen=True)
class Budget:
    """What every trial of a study is given.

    Attributes:
        steps: updates of a `dl2` policy; of a `set` policy 32 replays each, in a twin of 500 jobs.
        rungs: how often it is scored, the end included; at most as many as there are steps.
        worlds: that score it.
    """

    steps: int
    rungs: int
    worlds: int


@dataclass(frozen=True)
class TrialTask:
    """Everything that a trial's scores follow from.

    Attributes:
        part: whose worlds score it.
        earlier: scores of the trials that went to their end in earlier batches; `can_be_given_up` if it does worse.
    """

    worlds: TuningWorlds
    space: Space
    budget: Budget
    values: Values
    seed: int
    part: WorldPart
    earlier: tuple[Scores, ...] = ()
    can_be_given_up: bool = False


class _GivenUp(Exception):
    """Others did better at this rung."""


def run_trial(task: TrialTask) -> TrialReport:
    """Train and score; the same for the same task.

    Raises:
        BadInput: a source cannot be used.
    """
    import torch  # noqa: PLC0415  (two thirds of every program's start)

    # Sums come out the same whatever else the machine does, and processes do not fight over cores.
    torch.set_num_threads(1)
    scores: list[float] = []
    by_world: tuple[float, ...] = ()

    def rung(policy_of: Callable[[], SchedulerPolicy]) -> None:
        nonlocal by_world
        by_world = _scored(task, policy_of)
        scores.append(float(np.mean(by_world)))
        if task.can_be_given_up and len(scores) < task.budget.rungs and is_given_up(task.earlier, scores):
            raise _GivenUp

    settings = task.space.settings(task.values)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is said in the report
            if settings.policy == "dl2":
                _train_dl2(task, settings.dl2, rung)
            else:
                _teach_set(task, settings.set, rung)
    except _GivenUp:
        return TrialReport(tuple(scores), by_world, given_up=True)
    except tuple(FAILURES) as error:
        return TrialReport(tuple(scores), failure=FAILURES[type(error)])
    return TrialReport(tuple(scores), by_world)


def rung_steps(steps: int, rungs: int) -> set[int]:
    """After how many steps a trial is scored; there are as many steps as rungs at least."""
    return {round(steps * (rung + 1) / rungs) for rung in range(rungs)}


def _at_rungs(
    task: TrialTask, steps: int, rung: Rung, policy_of: Callable[[Weights], SchedulerPolicy]
) -> Callable[..., None]:
    """What a training of so many steps calls with how many are done and the weights then."""
    rungs = rung_steps(steps, task.budget.rungs)

    def on_step(done: int, weights: Weights, *_: float) -> None:
        if done in rungs:
            check_finite(weights)
            rung(lambda: policy_of(weights))

    return on_step


def _scored(task: TrialTask, policy_of: Callable[[], SchedulerPolicy]) -> tuple[float, ...]:
    truth, effect = task.worlds.loader.speeds(), task.worlds.loader.placement_effect()
    found = []
    for number in range(task.budget.worlds):
        workload, environment = task.worlds.episode(task.part, number)
        result = replay(workload, environment, policy_of(), truth, placement_effect=effect)
        found.append(math.log(result.to_json()["avg_jct_seconds"]))
    return tuple(found)


def _train_dl2(task: TrialTask, settings: Dl2Settings, rung: Rung) -> None:
    loader, budget = task.worlds.loader, task.budget
    spec = settings.spec(MODEL_NAMES)
    weights = initial_weights(spec, task.seed)
    if settings.imitate is not None:
        imitation = settings.imitation.model_copy(update={"micro_states": MICRO_STATES})
        shown = _demonstrations(task, settings.imitate, _usual_hidden(spec), imitation)
        weights = imitate(weights, spec, shown, imitation, steps=settings.imitation_steps, seed=task.seed)
    train_offline(
        weights,
        spec,
        _episodes(task, DEMONSTRATED_EPISODES),
        loader.speeds(),
        settings,
        task.seed,
        steps=budget.steps,
        placement_effect=loader.placement_effect(),
        stop=until_stuck(budget.steps),
        on_step=_at_rungs(task, budget.steps, rung, lambda weights: LearnedPolicy(spec, weights)),
    )


def _teach_set(task: TrialTask, settings: SetSettings, rung: Rung) -> None:
    start = begin(settings, task.seed)
    spec = set_spec_of(start, "what a trial begins with")
    windows = _remembered(("windows", task.worlds, task.seed), lambda: TaughtWindows(task.worlds, task.seed))
    updates = max(task.budget.rungs, twin_updates(task.budget.steps, settings.twin, windows.jobs))
    on_update = _at_rungs(task, updates, rung, lambda weights: SetPolicy(spec, weights, start.priors))
    teach(start, windows.draw, settings.twin, task.seed, updates=updates, on_update=on_update)


def _usual_hidden(spec: PolicySpec) -> PolicySpec:
    """The spec with the usual hidden layers: demonstrations do not depend on them, and are made once."""
    return spec.model_copy(update={"hidden": PolicySpec.model_fields["hidden"].default})


def _demonstrations(task: TrialTask, teacher: str, spec: PolicySpec, settings: ImitationSettings) -> Demonstrations:
    loader = task.worlds.loader

    def make() -> Demonstrations:
        speeds, effect = loader.speeds(), loader.placement_effect()
        seen = watch_in_turns(teacher, _episodes(task, 0), DEMONSTRATED_EPISODES, speeds, effect, seed=task.seed)
        return demonstrate(seen, spec, settings, task.seed)

    return _remembered(("demonstrations", teacher, task.worlds, task.seed, spec.digest), make)


def _episodes(task: TrialTask, first: int) -> Iterator[Episode]:
    return (task.worlds.training(task.seed, number) for number in itertools.count(first))


_last: dict[str, tuple[bytes, Any]] = {}
"""What trials of one process share: the newest of each kind, as it may be large."""


def _remembered(key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
    kind, name = str(key[0]), pickle.dumps(key)
    found = _last.get(kind)
    if found is None or found[0] != name:
        found = _last[kind] = (name, make())
    return found[1]
