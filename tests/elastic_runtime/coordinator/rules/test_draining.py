"""Tasks that were told to go leave without the job going back, and jobs are not without checkpoints meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import simulated_world
from simulated_world import SETTINGS, Member, World

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.protocol.plan import JobPhase, Timeline, View

TOTAL_STEPS = 400


@pytest.fixture(autouse=True)
def longer_job(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated_world.lengthen(monkeypatch, TOTAL_STEPS)


def world_with(**changes: object) -> World:
    return World(settings=SETTINGS.model_copy(update=changes)).training()


def owners(view: View) -> set[str]:
    return set(Timeline(view).at(10**9).owners)


def workers(view: View) -> tuple[str, ...]:
    return Timeline(view).at(10**9).workers


def drain(world: World, task: str) -> Member:
    member = world.members[task]
    member.report = replace(member.report, draining=True)
    world.send(member)
    return member


def rounds_without_new_tasks(world: World, rounds: int) -> None:
    for _ in range(rounds):
        for member in list(world.members.values()):
            world.deliver(member)
            world.act(member)
            if world.members.get(member.task) is member:
                world.send(member)
        world.pass_time(0.2)


def test_a_draining_server_is_replaced_and_let_go_without_a_step_lost() -> None:
    world = world_with()
    leaving = drain(world, "ps-0")
    assert world.views[-1].wanted == ("ps-2",)
    assert world.views[-1].proposal is None, "its blocks would move twice"
    world.rounds(lambda _: leaving.over)
    view = world.rounds(lambda view: view.member("ps-0") is None)
    assert (owners(view), view.generation, view.phase) == ({"ps-1", "ps-2"}, 1, JobPhase.RUNNING)
    assert world.status().target == Size(2, 2)


def test_without_a_replacement_other_servers_take_its_blocks_in_time() -> None:
    world = world_with(replacement_seconds=2.0, checkpoint_seconds=1000.0)
    leaving = drain(world, "ps-0")
    rounds_without_new_tasks(world, 8)
    assert owners(world.views[-1]) == {"ps-0", "ps-1"}
    rounds_without_new_tasks(world, 60)
    assert leaving.over
    assert (owners(world.views[-1]), world.views[-1].generation) == ({"ps-1"}, 1)
    assert world.views[-1].wanted == ("ps-2",)
    world.rounds(lambda view: owners(view) == {"ps-1", "ps-2"})


def test_the_last_server_stays_until_its_replacement_has_come() -> None:
    world = world_with(servers=1, replacement_seconds=1.0)
    leaving = drain(world, "ps-0")
    rounds_without_new_tasks(world, 15)
    assert not leaving.over
    view = world.rounds(lambda view: owners(view) == {"ps-1"})
    assert view.generation == 1
    world.rounds(lambda _: leaving.over)


def test_a_draining_worker_is_taken_out_at_once_and_replaced() -> None:
    world = world_with()
    leaving = drain(world, "worker-0")
    view = world.rounds(lambda view: workers(view) == ("worker-1",))
    assert view.substitutes == {}, "nobody computes for it: it does its steps"
    assert view.wanted == ("worker-2",) or view.member("worker-2") is not None
    world.rounds(lambda _: leaving.over)
    view = world.rounds(lambda view: workers(view) == ("worker-1", "worker-2"))
    assert (view.generation, world.status().target) == (1, Size(2, 2))


def test_the_last_worker_stays_until_its_replacement_has_come() -> None:
    world = world_with(workers=1)
    leaving = drain(world, "worker-0")
    rounds_without_new_tasks(world, 10)
    assert not leaving.over
    world.rounds(lambda view: workers(view) == ("worker-1",))
    world.rounds(lambda _: leaving.over)
    assert world.views[-1].generation == 1


def test_all_may_drain_at_once() -> None:
    world = world_with()
    for task in ("ps-0", "ps-1", "worker-0", "worker-1"):
        drain(world, task)
    view = world.rounds(lambda view: (owners(view), workers(view)) == ({"ps-2", "ps-3"}, ("worker-2", "worker-3")))
    assert view.generation == 1
    world.until(JobPhase.FINISHED)


def test_a_resize_takes_those_who_want_to_go_first() -> None:
    world = world_with()
    drain(world, "ps-0")
    drain(world, "worker-0")
    world.resize("r", 1, 1)
    assert world.ended("r").state is RequestOutcome.DONE
    assert (owners(world.views[-1]), workers(world.views[-1])) == ({"ps-1"}, ("worker-1",))
    assert world.views[-1].generation == 1


def test_who_wants_to_go_does_not_wait_for_the_tasks_of_a_resize() -> None:
    world = world_with(replacement_seconds=1.0)
    world.resize("r", 3, 2)
    server, worker = drain(world, "ps-0"), drain(world, "worker-0")
    rounds_without_new_tasks(world, 60)
    assert server.over
    assert worker.over
    assert (owners(world.views[-1]), workers(world.views[-1])) == ({"ps-1"}, ("worker-1",))
    assert world.ended("r").state is RequestOutcome.DONE
    assert (world.status().size, world.views[-1].generation) == (Size(3, 2), 1)


def test_a_new_task_that_wants_to_go_again_is_let_go_and_another_one_wanted() -> None:
    world = world_with()
    world.resize("r", 3, 2)
    world.start("ps-2")
    drain(world, "ps-2")
    assert (world.views[-1].leaving, world.views[-1].wanted) == (("ps-2",), ("ps-3",))
    world.ended("r")
    assert owners(world.views[-1]) == {"ps-0", "ps-1", "ps-3"}


def test_before_the_job_trains_nobody_is_held() -> None:
    world = World()
    world.start("worker-0")
    world.start("ps-0")
    drain(world, "worker-0")
    drain(world, "ps-0")
    assert world.views[-1].leaving == ("ps-0", "worker-0")
    assert world.views[-1].wanted == ("ps-1", "ps-2", "worker-1", "worker-2")
    world.rounds(lambda view: view.phase is JobPhase.RUNNING)


def test_a_coordinator_that_was_killed_hears_it_again() -> None:
    world = world_with()
    leaving = drain(world, "ps-0")
    world.restart()
    world.rounds(lambda _: leaving.over)
    assert world.views[-1].generation == 1


@pytest.mark.parametrize(("exit_code", "failures"), [(0, 1), (1, 1), (-15, 0), (3, 0)])
def test_a_script_that_ends_before_its_job_has_failed_whatever_it_says(exit_code: int, failures: int) -> None:
    world = world_with()
    del world.members["worker-1"]
    world.take(world.machine.on_task_ended("worker-1", exit_code, "", world.now))
    assert world.machine.state.course.failures.total == failures
    world.rounds(lambda view: workers(view) == ("worker-0", "worker-2"))


def test_scripts_that_always_end_early_fail_the_job_with_one_line() -> None:
    world = world_with(restarts=0)
    del world.members["worker-1"]
    world.take(world.machine.on_task_ended("worker-1", 0, "", world.now))
    assert world.views[-1].phase is JobPhase.FAILED
    assert world.views[-1].failure == (
        "worker-1: its script ended before the job did; let its loop over the job's batches come to its end, or leave "
        "it by break or job.end()"
    )


def test_whoever_was_let_go_or_had_finished_may_end() -> None:
    world = world_with()
    world.resize("r", 2, 1)
    world.ended("r")
    world.take(world.machine.on_task_ended("worker-1", 0, "", world.now))
    member = world.members["worker-0"]
    member.report = replace(member.report, finished=True)
    world.send(member)
    world.take(world.machine.on_task_ended("worker-0", 0, "", world.now))
    assert world.machine.state.course.failures.total == 0


def test_a_job_is_written_while_its_resize_waits_for_new_tasks() -> None:
    world = world_with(checkpoint_seconds=1.0)
    world.resize("r", 3, 2)
    written = []
    for _ in range(3):
        rounds_without_new_tasks(world, 30)
        written.append(world.status().durable_step)
    assert 0 < written[0] < written[1] < written[2]
    assert world.status().requests[0].state is RequestOutcome.RUNNING
    assert world.ended("r").state is RequestOutcome.DONE


def test_a_job_is_written_between_resizes_that_follow_each_other() -> None:
    world = world_with(checkpoint_seconds=1.0)
    for number in range(6):
        world.resize(f"r{number}", 2, 1 + number % 2)
    durable = []
    for number in range(6):
        assert world.ended(f"r{number}").state is RequestOutcome.DONE
        durable.append(world.status().durable_step)
    assert durable[-1] > durable[0]
    assert world.views[-1].phase is JobPhase.RUNNING


def test_a_server_on_its_way_out_that_fails_while_a_resize_waits_sends_the_job_back_and_not_on_without_its_blocks() -> (
    None
):
    world = world_with(minimum_servers=1, replacement_seconds=0.1, new_task_seconds=1000)
    leaving = drain(world, "ps-1")
    world.start = lambda task: None  # type: ignore[method-assign]  # nobody new comes
    world.resize("grow", 3, 3)
    world.slow_network = True
    for _ in range(100):
        world.round()
        if world.machine.state.generation.moving and "ps-1" not in owners(world.views[-1]):
            break
    assert "ps-1" in world.members
    assert world.machine.state.generation.moving
    report = replace(leaving.report, failure="ps-1: ValueError: no", bad_input=True)
    del world.members["ps-1"]
    world.take(world.machine.on_report(report, world.now)[1])
    assert world.views[-1].phase is JobPhase.RECOVERING
    assert world.ended("grow").state is RequestOutcome.ABORTED
