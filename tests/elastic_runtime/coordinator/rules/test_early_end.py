"""A worker whose script has ended the job says after which step: the job ends there, or goes back and ends then."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import simulated_world
from simulated_world import SETTINGS, Member, World

from elastic_runtime.control.messages import RequestState, Size
from elastic_runtime.protocol.plan import JobPhase

TOTAL_STEPS = 400


@pytest.fixture(autouse=True)
def longer_job(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated_world.lengthen(monkeypatch, TOTAL_STEPS)


def end_job(world: World) -> int:
    """The first worker that has pushed nothing of its step ends the job; how many steps it has then."""
    while True:
        for member in world.members.values():
            if member.worker and member.entered == world.views[-1].generation and member.begun < member.report.step:
                return reported(world, member)
        world.round()


def reported(world: World, member: Member) -> int:
    member.report = replace(member.report, finished=True)
    member.over = True
    world.send(member)
    return member.report.step


def test_the_job_ends_with_the_steps_that_were_done() -> None:
    world = World().training()
    steps = end_job(world)
    assert 0 < steps < TOTAL_STEPS
    world.until(JobPhase.FINISHED)
    assert world.views[-1].ends_at == steps
    assert world.machine.state.checkpoints.durable[-1][1] == steps
    status = world.machine.status(world.now)
    assert (status.step, status.total_steps) == (steps, steps)


def test_it_is_remembered_by_a_coordinator_that_is_started_again() -> None:
    world = World().training()
    steps = end_job(world)
    world.restart()
    assert world.views[-1].ends_at == steps
    world.until(JobPhase.FINISHED)
    assert world.machine.state.checkpoints.durable[-1][1] == steps


def test_a_checkpoint_that_was_to_come_later_is_given_up() -> None:
    world = World(settings=SETTINGS.model_copy(update={"checkpoint_seconds": 2.0})).training()
    view = world.rounds(lambda view: any(change.checkpoint for change in view.changes))
    assert view.changes[-1].clock > min(m.report.step for m in world.members.values() if m.worker)
    steps = end_job(world)
    world.until(JobPhase.FINISHED)
    assert (world.views[-1].ends_at, world.views[-1].generation) == (steps, 1)
    assert world.machine.state.checkpoints.durable[-1][1] == steps


def test_while_blocks_are_to_move_later_the_job_goes_back_and_ends_from_there() -> None:
    world = World().training()
    world.request(RequestState("more", "resize", target=Size(3, 2)))
    world.rounds(lambda view: any(change.stages for change in view.changes))
    end_job(world)
    assert world.views[-1].phase is JobPhase.RECOVERING
    world.rounds(lambda view: view.phase is JobPhase.RUNNING and view.generation == 2)
    steps = end_job(world)
    world.until(JobPhase.FINISHED)
    assert world.machine.state.checkpoints.durable[-1][1] == steps


@pytest.mark.parametrize("seed", range(20))
def test_whenever_a_script_ends_the_job_nothing_hangs(seed: int) -> None:
    chance = random.Random(seed)
    world = World().training()
    for number in range(chance.randrange(4)):
        size = Size(chance.randrange(1, 4), chance.randrange(1, 4))
        world.request(RequestState(f"r{number}", "resize", target=size))
        for _ in range(chance.randrange(30)):
            world.round()
    while world.views[-1].phase is not JobPhase.FINISHED:
        if world.views[-1].ends_at is None and chance.random() < 0.2:
            end_job(world)
        world.round()
