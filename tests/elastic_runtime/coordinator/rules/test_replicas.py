"""A coordinator whose blocks have two holders: what it does when one of them is lost, and when it has to go back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_world import BATCH, BLOCKS, LAYOUT, SETTINGS, TOTAL_STEPS, World

from elastic_runtime.control.messages import RequestOutcome, ResizeMode
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, Plan, TaskRole, Timeline


def world(**changes: object) -> World:
    return World(settings=SETTINGS.model_copy(update={"replicas": 2, **changes}))


def plan(world: World) -> Plan:
    return Timeline(world.views[-1]).at(10**9)


def kill(world: World, name: str) -> None:
    world.kill(world.members[name], reported=True)


def twice_held(world: World) -> bool:
    return world.status().blocks_with_replica == BLOCKS


def test_from_the_start_every_block_has_two_holders() -> None:
    job = world(servers=3).training()
    assert twice_held(job)
    assert all(len(set(plan(job).holders(block))) == 2 for block in range(BLOCKS))
    assert job.status().replicas == 2


def test_a_lost_server_costs_no_step_and_its_blocks_get_other_holders() -> None:
    job = world(servers=3).training()
    step = job.status().step
    kill(job, "ps-1")
    assert job.views[-1].lost_servers == ("ps-1",)
    assert job.status().step >= step
    assert job.status().blocks_with_replica < BLOCKS
    assert plan(job).servers == tuple(name for name in plan(job).servers if name in ("ps-0", "ps-2"))
    job.rounds(lambda view: twice_held(job))
    assert not set(plan(job).servers) & {"ps-1"}
    job.rounds(lambda view: "ps-3" in plan(job).servers and twice_held(job))
    assert (job.views[-1].generation, job.views[-1].phase) == (1, JobPhase.RUNNING)


def test_lost_servers_are_forgotten_once_no_plan_names_them() -> None:
    job = world(servers=2, checkpoint_seconds=1e9).training()
    kill(job, "ps-1")
    for number in range(12):
        job.resize(f"request {number}", 2 + number % 2, 2)
        assert job.ended(f"request {number}").state is RequestOutcome.DONE
        if job.status().step > 30:
            break
    assert job.views[-1].generation == 1
    for name in job.views[-1].lost_servers:
        named = {*job.views[-1].start_plan.servers}
        for change in job.views[-1].changes:
            named |= {name for s in change.stages for name in (*s.moves.values(), *s.replicas.values())}
        assert name in named


def test_both_holders_lost_means_back_to_the_checkpoint() -> None:
    job = world(servers=2).training()
    kill(job, "ps-1")
    kill(job, "ps-0")
    assert job.views[-1].phase is JobPhase.RECOVERING
    view = job.rounds(lambda view: view.generation == 2 and view.phase is JobPhase.RUNNING)
    assert view.lost_servers == ()
    assert twice_held(job)


def test_what_a_server_was_to_write_at_a_halt_is_written_by_the_other_holders() -> None:
    job = world(servers=2).training()
    job.resize("r", 2, 3, mode=ResizeMode.CHECKPOINT_RESTART)
    view = job.rounds(lambda view: any(change.halt for change in view.changes))
    clock = view.changes[-1].clock
    kill(job, "ps-1")
    assert job.ended("r").state is RequestOutcome.DONE
    assert (job.generation, job.views[-1].start_step) == (2, clock)


def test_the_last_checkpoint_is_written_without_a_server_lost_meanwhile() -> None:
    job = world(servers=3).training()
    job.rounds(lambda view: any(change.halt for change in view.changes))
    kill(job, "ps-0")
    job.until(JobPhase.FINISHED)
    assert job.generation == 1
    assert job.status().durable_step == TOTAL_STEPS


def test_a_draining_server_is_replaced_and_all_blocks_have_two_holders_meanwhile() -> None:
    job = world(servers=2).training()
    member = job.members["ps-0"]
    member.report = replace(member.report, draining=True)
    job.send(member)
    while not member.over:
        job.round()
        assert twice_held(job)
    assert plan(job).servers == ("ps-1", "ps-2")
    assert job.generation == 1


def test_a_checkpoint_that_a_lost_server_was_writing_is_begun_anew() -> None:
    job = world(servers=3, checkpoint_seconds=0.1)
    job.rounds(lambda view: any(change.checkpoint for change in view.changes))
    kill(job, "ps-0")
    before = job.status().durable_step
    job.rounds(lambda view: job.status().durable_step > before)
    assert job.views[-1].generation == 1


def test_one_server_holds_all_once_and_says_so_until_a_second_comes() -> None:
    job = world(servers=1).training()
    assert plan(job).replicas == ()
    assert (job.status().blocks, job.status().blocks_with_replica) == (BLOCKS, 0)
    job.resize("r", 2, 2)
    row = job.ended("r")
    assert row.state is RequestOutcome.DONE
    assert row.minimum_bytes == BLOCKS * 4096, "the new one gets the whole model"
    assert twice_held(job)


def test_to_one_server_again_moves_nothing_it_has() -> None:
    job = world(servers=2).training()
    job.resize("r", 1, 2)
    assert job.ended("r").minimum_bytes == 0
    assert plan(job).servers == ("ps-0",)
    assert job.views[-1].generation == 1


def test_a_coordinator_that_begins_again_still_knows_who_is_lost() -> None:
    job = world(servers=3).training()
    kill(job, "ps-2")
    job.restart()
    assert job.views[-1].lost_servers == ("ps-2",)
    job.rounds(lambda view: twice_held(job))
    assert job.views[-1].generation == 1


@pytest.mark.parametrize("holders", [1, 2])
def test_asynchronous_training_with_two_holders_is_refused(holders: int) -> None:
    training = Training(
        optimizer=SGD(lr=0.1), samples=BATCH * 8, global_batch=BATCH, epochs=1, synchronous=False, worker_batch=4
    )
    job = world(replicas=holders)
    newcomer = Newcomer("worker-0", TaskRole.WORKER, 7, "{}", LAYOUT, training.to_json().decode())
    refusal, _ = job.machine.on_register(newcomer, 0.0)
    if holders == 1:
        assert refusal == ""
    else:
        assert "would see updates in different orders" in refusal
        assert "--replicas" in refusal
