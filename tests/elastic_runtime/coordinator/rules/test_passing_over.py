"""A damaged checkpoint is passed over, by a job that resumes and by one that recovers; what is not damage is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_world import LAYOUT, SETTINGS, World

from elastic_runtime.checkpoint.catalog import Search
from elastic_runtime.checkpoint.manifest import Manifest
from elastic_runtime.control.messages import RequestState, Size
from elastic_runtime.coordinator.checkpoint_store import describe
from elastic_runtime.coordinator.rules import leases, members
from elastic_runtime.coordinator.rules.checkpointing import SearchOrder
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import enter
from elastic_runtime.coordinator.rules.state import Checkpoints, CoordinatorState, Course, Generation, Leases
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.protocol.plan import JobPhase, Plan

SOME = SETTINGS.model_copy(update={"checkpoint_seconds": 1, "restarts": 1, "losses": 20})


def world_with(checkpoints: int) -> tuple[World, list[tuple[str, int]]]:
    """A job that trains and has so many checkpoints; these."""
    world = World(settings=SOME)
    world.rounds(lambda _: len(world.machine.state.checkpoints.durable) >= checkpoints)
    return world, list(world.machine.state.checkpoints.durable)


def lose_a_server(world: World) -> None:
    world.kill(world.members["ps-0"], reported=True)
    assert world.views[-1].phase is JobPhase.RECOVERING


def suspend_and_begin_again(world: World) -> None:
    """As the last process of a job ends, and `elastic-run resume` starts it again."""
    _, outcome = world.machine.on_request(RequestState("suspend", "suspend"), world.now)
    world.take(outcome)
    world.until(JobPhase.SUSPENDED)
    world.members.clear()
    world.restart()


def resume(world: World) -> None:
    _, outcome = world.machine.on_request(RequestState("resume", "resume", target=Size(2, 2)), world.now)
    world.take(outcome)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_job_goes_back_to_the_newest_sound_one_and_says_so(resumed: bool) -> None:
    world, _ = world_with(2)
    if resumed:
        suspend_and_begin_again(world)
    (older, step), newest = world.machine.state.checkpoints.durable[-2:]
    world.damaged = {newest[0]}
    if resumed:
        resume(world)
    else:
        lose_a_server(world)
    world.until(JobPhase.RUNNING)
    assert (world.views[-1].start_step, world.views[-1].start_checkpoint) == (step, older)
    assert world.views[-1].notice == f"going back to step {step}: {newest[0]} is passed over: cut short"
    assert newest not in world.machine.state.checkpoints.durable
    assert world.machine.state.course.failures.total == 0, "no process was at fault"
    world.until(JobPhase.FINISHED)


def test_what_a_resume_says_is_not_said_again_at_the_next_one() -> None:
    world, durable = world_with(2)
    world.damaged = {durable[-1][0]}
    lose_a_server(world)
    world.until(JobPhase.RUNNING)
    assert world.views[-1].notice
    world.damaged.clear()
    suspend_and_begin_again(world)
    assert not world.views[-1].notice


def test_without_any_sound_one_the_job_fails_and_says_what_is_wrong() -> None:
    world, durable = world_with(2)
    world.damaged = {name for name, _ in durable}
    lose_a_server(world)
    world.until(JobPhase.FAILED)
    line = world.status().failure
    assert line.startswith("there is no other checkpoint: ")
    assert all(f"{name} is passed over: cut short" in line for name, _ in durable)


def test_a_server_that_alone_sees_damage_is_at_fault_itself() -> None:
    """Its disk may not be there: nothing that the coordinator can read is given up for that."""
    world, durable = world_with(2)
    world.damaged, world.looks_sound = {durable[-1][0]}, True
    lose_a_server(world)
    world.until(JobPhase.FAILED)
    assert "is cut short" in world.status().failure
    assert world.machine.state.checkpoints.durable[-1] == durable[-1]


def test_a_coordinator_that_dies_while_it_looks_looks_again() -> None:
    world, durable = world_with(2)
    world.damaged = {durable[-1][0]}
    lose_a_server(world)
    world.dies_searching = True
    world.until(JobPhase.RUNNING)
    assert world.views[-1].start_step == durable[-2][1]
    assert not world.dies_searching, "it did"


def gathering(book_json: str) -> CoordinatedJob:
    """An asynchronous job that goes back, two of whose checkpoints are on the disk."""
    state = CoordinatorState(course=Course(phase=JobPhase.RECOVERING, formed=True))
    state.generation = Generation(3, start_plan=Plan(("worker-0",), ("ps-0",)))
    state.checkpoints = Checkpoints((("step-10", 10), ("step-20", 20)), book_json)
    state.leases = Leases(book_json)
    return CoordinatedJob(SETTINGS, state, lambda: 0.0)


def manifest(name: str, **position: object) -> Manifest:
    return Manifest(Path(name), int(name[5:]), Layout.from_json(LAYOUT.encode()), SGD(lr=0.1), (), position)


def test_samples_are_lent_again_from_where_the_older_checkpoint_was(monkeypatch: pytest.MonkeyPatch) -> None:
    job = gathering('{"of": "20"}')
    gone_back: list[str] = []
    monkeypatch.setattr(leases, "go_back", lambda _, book_json: gone_back.append(book_json))
    found = describe(Search(manifest("step-10", leases={"of": "10"}), ((Path("step-20"), "cut"),)))
    members.on_checkpoint_searched(job, SearchOrder(3, ("step-20", "step-10")), found, "", 0.0)
    assert job.state.checkpoints == Checkpoints((("step-10", 10),), '{"of": "10"}')
    assert gone_back == ['{"of": "10"}']
    without = describe(Search(manifest("step-10"), ())).sound
    assert without is not None
    assert without.book_json == ""


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    job = gathering("")
    before = replace(job.state)
    found = describe(Search(manifest("step-10"), ((Path("step-20"), "cut"),)))
    members.on_checkpoint_searched(job, SearchOrder(2, ("step-20", "step-10")), found, "", 0.0)
    enter(job.state, JobPhase.FAILED)
    members.on_checkpoint_searched(job, SearchOrder(3, ("step-20", "step-10")), found, "", 0.0)
    assert job.state.checkpoints == before.checkpoints


def test_only_servers_that_read_the_checkpoint_are_believed() -> None:
    world, _ = world_with(2)
    worker = world.members["worker-0"]
    worker.report = replace(worker.report, damage="so I say")
    world.until(JobPhase.FINISHED)
    assert world.generation == 1
