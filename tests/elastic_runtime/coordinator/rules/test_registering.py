"""Who may join, by the address that it brings: peers that could not reach it would wait for it."""

from __future__ import annotations

import json

import pytest
from simulated_world import LAYOUT, SETTINGS, TRAINING, World

from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import Checkpoints
from elastic_runtime.protocol.plan import JobPhase, TaskRole

KEY = "a" * 40


def refusal(machine: CoordinatorMachine, task: str, address_json: str) -> str:
    worker = task.startswith("worker")
    role = TaskRole.WORKER if worker else TaskRole.SERVER
    models = (LAYOUT, TRAINING) if worker else ("", "")
    return machine.on_register(Newcomer(task, role, 7, address_json, *models), 0.0)[0]


@pytest.fixture
def machine() -> CoordinatorMachine:
    machine = CoordinatorMachine(SETTINGS, 0.0, begin(SETTINGS), lambda: 0.0)
    machine.on_tick(0.0)
    return machine


@pytest.mark.parametrize("address_json", ["", "text", "[]", "7", '{"tcp": 7}', "[" * 100_000])
def test_what_is_no_address_is_refused(machine: CoordinatorMachine, address_json: str) -> None:
    assert "worker-0 brought no address of a data plane" in refusal(machine, "worker-0", address_json)
    assert not refusal(machine, "worker-0", "{}")


@pytest.mark.parametrize("first", [True, False])
def test_one_task_that_encrypts_otherwise_than_the_others_is_refused(machine: CoordinatorMachine, first: bool) -> None:
    plain, encrypted = json.dumps({"public_key": ""}), json.dumps({"public_key": KEY})
    assert not refusal(machine, "ps-0", encrypted if first else plain)
    line = refusal(machine, "worker-0", plain if first else encrypted)
    assert "set ELASTIC_CURVE alike for all tasks of job simulated" in line
    assert ("does not encrypt its data, and ps-0 does:" in line) == first
    assert not refusal(machine, "worker-0", encrypted if first else plain)


def test_a_checkpoint_that_is_further_than_its_new_job_goes_is_refused() -> None:
    state = begin(SETTINGS)
    state.checkpoints = Checkpoints((("step-0000000041", 41),))
    machine = CoordinatorMachine(SETTINGS, 0.0, state, lambda: 0.0)
    machine.on_tick(0.0)
    assert refusal(machine, "worker-0", "{}") == (
        "the checkpoint to begin from is at step 41, this job ends at 40: give more epochs or steps"
    )
    state.checkpoints = Checkpoints((("step-0000000040", 40),))
    assert not refusal(machine, "worker-0", "{}")


def test_who_comes_when_the_job_does_without_it_is_told_from_who_never_had_a_place() -> None:
    world = World().training()
    world.machine.on_task_ended("worker-1", -9, "", world.now)
    late = Newcomer("worker-1", TaskRole.WORKER, 99, "{}", LAYOUT, TRAINING)
    assert world.machine.on_register(late, world.now)[0].startswith("worker-1 is not wanted")
    names = ("worker-1", "worker-0", "worker-77", "ps-77", "x", "x-0")
    assert [name for name in names if world.machine.is_not_needed(name)] == ["worker-1"]


@pytest.mark.parametrize(("phase", "not_needed"), [(JobPhase.FINISHED, True), (JobPhase.FAILED, False)])
def test_a_finished_job_needs_nobody_and_a_failed_one_says_so(phase: JobPhase, not_needed: bool) -> None:
    world = World(settings=CoordinatorSettings.model_validate({**SETTINGS.model_dump(), "restarts": 0})).training()
    if phase is JobPhase.FAILED:
        world.take(world.machine.on_task_ended("worker-0", 1, "it broke", world.now))
    world.until(phase)
    assert world.machine.is_not_needed("worker-0") is not_needed


def alive(world: World, task: str) -> bool:
    return world.views[-1].member(task) is not None


def come(world: World, task: str) -> None:
    """A task registers; a server does so again and again until a worker has brought the model."""
    worker = task.startswith("worker")
    role = TaskRole.WORKER if worker else TaskRole.SERVER
    models = (LAYOUT, TRAINING) if worker else ("", "")
    refused, outcome = world.machine.on_register(Newcomer(task, role, 7, "{}", *models), world.now)
    assert not refused
    world.take(outcome)


def test_a_server_that_asks_for_the_model_of_a_worker_that_comes_late_is_not_taken_for_dead() -> None:
    world = World()
    for _ in range(60):
        come(world, "ps-0")
        world.pass_time(4.0)
    assert alive(world, "ps-0")


@pytest.mark.parametrize("task", ["ps-0", "worker-0"])
def test_who_registered_and_is_slow_to_say_its_first_word_is_not_taken_for_dead(task: str) -> None:
    world = World()
    come(world, task)
    world.pass_time(SETTINGS.silent_seconds + SETTINGS.lost_seconds)
    assert alive(world, task)
    world.take(world.machine.on_stream(task, 7, True, world.now))
    world.take(world.machine.on_stream(task, 7, False, world.now))
    world.pass_time(SETTINGS.lost_seconds)
    assert not alive(world, task), "now it was heard, and is missed at once"


def test_who_never_says_a_word_is_missed_in_the_end() -> None:
    world = World().training()
    world.resize("grow", 3, 2)
    world.rounds(lambda view: bool(view.wanted))
    (task,) = world.views[-1].wanted
    come(world, task)
    world.pass_time(1.0)
    assert alive(world, task)
    for _ in range(400):
        for member in list(world.members.values()):
            world.send(member)
        world.pass_time(1.0)
    assert not alive(world, task)
