"""What every engine of trials must do, wherever it runs them.

Processes load this module by its name, so what they are to do stands here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.commands.tune import OptionsLoader
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.task_processes import TaskFailed
from policy_net.laboratory.tuning.engine import Engine
from policy_net.laboratory.tuning.space import space_of
from policy_net.laboratory.tuning.study_file import TrialReport
from policy_net.laboratory.tuning.trial import Budget, TrialTask, run_trial
from policy_net.laboratory.tuning.worlds import TuningWorlds, WorldPart

LOADER = OptionsLoader(WorldOptions(nodes=2))
SPACE = space_of("set")
FAST = SPACE.defaults | {"pairs": 2, "average_updates": 1.0, "learning_rate": 1.5}
"""Few replays, and long steps, so that another seed of training is seen in the scores."""
TASK = TrialTask(
    TuningWorlds(LOADER, ("dl2:jobs=4",), {}), SPACE, Budget(1, 1, 2), FAST, seed=0, part=WorldPart.CHOOSING
)
UNLUCKY = 2
MARK = "FEDL2_TEST_MARK"
"""Names the file in which a process writes its number as it begins."""


def tasks(count: int) -> list[TrialTask]:
    return [replace(TASK, seed=seed) for seed in range(count)]


def echo(task: TrialTask) -> TrialReport:
    return TrialReport((float(task.seed),), (0.5, float(task.seed)))


def killed(task: TrialTask) -> TrialReport:
    if task.seed == UNLUCKY:
        os.kill(os.getpid(), signal.SIGKILL)
    return echo(task)


def refused(task: TrialTask) -> TrialReport:
    if task.seed == UNLUCKY:
        raise BadInput("jobs.csv: no such file")
    return echo(task)


def broken(task: TrialTask) -> TrialReport:
    if task.seed == UNLUCKY:
        raise ZeroDivisionError("a fault of ours")
    return echo(task)


def hang(task: TrialTask) -> TrialReport:
    threading.Event().wait()
    return echo(task)


def hang_the_first_time(task: TrialTask) -> TrialReport:
    mark = Path(os.environ[MARK])
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        threading.Event().wait()
    return echo(task)


class EngineContract:
    """Subclasses say how one is made, for so many trials at a time and for what each of them does."""

    make: Callable[[int, Callable[[TrialTask], TrialReport]], Engine]

    @pytest.fixture(params=[1, 2])
    def processes(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    def test_every_task_has_one_report_its_own(self, processes: int) -> None:
        wanted = tasks(5)
        with closing(self.make(processes, echo)) as engine:
            found = list(engine.reports(wanted))
            again = list(engine.reports(wanted[:1]))
        assert sorted(found, key=lambda pair: pair[0]) == [(index, echo(task)) for index, task in enumerate(wanted)]
        assert again == [(0, echo(wanted[0]))]

    def test_a_trial_comes_to_the_same_as_in_this_process(self, processes: int) -> None:
        wanted = tasks(2)
        with closing(self.make(processes, run_trial)) as engine:
            found = dict(engine.reports(wanted))
        assert [found[index] for index in range(2)] == [run_trial(task) for task in wanted]
        assert found[0].scores != found[1].scores

    def test_a_trial_whose_process_is_killed_has_failed_and_the_others_have_not(self, processes: int) -> None:
        with closing(self.make(processes, killed)) as engine:
            found = dict(engine.reports(tasks(4)))
        assert [index for index, report in found.items() if report.failure] == [UNLUCKY]
        assert "its process" in str(found[UNLUCKY].failure)
        assert found[3] == echo(tasks(4)[3])

    def test_what_a_trial_refuses_is_raised(self, processes: int) -> None:
        with closing(self.make(processes, refused)) as engine, pytest.raises(BadInput, match="no such file"):
            list(engine.reports(tasks(4)))

    def test_a_fault_ends_the_study_and_says_what_it_is(self, processes: int) -> None:
        with closing(self.make(processes, broken)) as engine, pytest.raises(TaskFailed, match="ZeroDivisionError"):
            list(engine.reports(tasks(4)))

    def test_nothing_to_do_is_done(self) -> None:
        with closing(self.make(1, echo)) as engine:
            assert list(engine.reports([])) == []
            engine.close()
