"""A job whose launcher died goes on with as many tasks as there is room for now, and never with more on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_world import SETTINGS, World

from elastic_runtime.control.messages import RequestOutcome, RequestState, Size
from elastic_runtime.coordinator.journal import restore
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_spec import JobSpec, Programs
from elastic_runtime.protocol.plan import JobPhase

LESS = SETTINGS.model_copy(update={"servers": 1, "workers": 1})


def relaunch(world: World) -> None:
    """All processes of the job have died; another launcher has room for one server and one worker."""
    world.members.clear()
    world.machine = CoordinatorMachine(LESS, world.now, restore(world.records) or begin(LESS), lambda: 0.0)
    world.machine.on_relaunch()
    world.take(world.machine.on_tick(world.now))


def starting(world: World) -> None:
    assert world.views[-1].phase is JobPhase.STARTING


def registering(world: World) -> None:
    for task in world.views[-1].wanted:
        world.start(task)


def training(world: World) -> None:
    world.training()


def growing(world: World) -> None:
    world.training().resize("grow", 3, 3)
    assert world.views[-1].wanted


def shrinking(world: World) -> None:
    world.training().resize("shrink", 1, 1)
    world.rounds(lambda view: view.phase is JobPhase.RESIZING and bool(view.changes))


def suspending(world: World) -> None:
    world.training()
    world.take(world.machine.on_request(RequestState("hold", "suspend"), world.now)[1])
    assert world.views[-1].phase is JobPhase.SUSPENDING


def resuming(world: World) -> None:
    suspending(world)
    world.rounds(lambda view: view.phase is JobPhase.SUSPENDED)
    world.take(world.machine.on_request(RequestState("on", "resume", target=Size(2, 2)), world.now)[1])
    assert world.views[-1].phase is JobPhase.STARTING


def recovering(world: World) -> None:
    world.training()
    world.kill(world.members["ps-0"], reported=True)
    assert world.views[-1].phase is JobPhase.RECOVERING


STATES = [starting, registering, training, growing, shrinking, suspending, resuming, recovering]


@pytest.mark.parametrize("reach", STATES)
def test_it_never_asks_for_more_than_it_may_have(reach: Callable[[World], None]) -> None:
    world = World()
    reach(world)
    relaunch(world)
    seen = len(world.views) - 1
    world.rounds(lambda view: view.phase is JobPhase.RUNNING and world.status().size == Size(1, 1))
    tasks = {task for view in world.views[seen:] for task in (*view.wanted, *(one.task for one in view.members))}
    assert len(tasks) == 2, tasks
    assert all(row.state is RequestOutcome.ABORTED for row in world.status().requests if row.request_id != "hold")
    world.until(JobPhase.FINISHED)


def test_a_suspended_job_waits_for_its_resumption_as_before() -> None:
    world = World()
    suspending(world)
    world.rounds(lambda view: view.phase is JobPhase.SUSPENDED)
    relaunch(world)
    assert world.views[-1].phase is JobPhase.SUSPENDED
    world.take(world.machine.on_request(RequestState("on", "resume", target=Size(1, 1)), world.now)[1])
    world.rounds(lambda view: view.phase is JobPhase.RUNNING and world.status().size == Size(1, 1))


def test_a_job_that_has_finished_stays_so() -> None:
    world = World()
    world.until(JobPhase.FINISHED)
    relaunch(world)
    assert world.views[-1].phase is JobPhase.FINISHED


def test_only_the_first_coordinator_of_a_launcher_is_told_that_nobody_lives(tmp_path: Path) -> None:
    spec = JobSpec(script=tmp_path / "x.py", python="python", working_folder=tmp_path, servers=2, workers=2)
    again = Programs(spec, JobFolder(tmp_path / "job"), {}, Size(1, 3))
    first, later = again.coordinator("unix:x", None), again.coordinator("unix:x", None, again=True)
    assert {"--relaunched", "--servers=1", "--workers=3"} <= {*first}
    assert "--relaunched" not in later
    assert "--relaunched" not in Programs(spec, JobFolder(tmp_path / "job"), {}).coordinator("unix:x", None)
