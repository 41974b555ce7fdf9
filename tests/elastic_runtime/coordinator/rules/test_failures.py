"""What would fail again is not tried again: the job ends with its line at once, a resize is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_world import SETTINGS, World, lengthen

from elastic_runtime.control.messages import RequestOutcome, RequestState, Size
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.protocol.plan import JobPhase, TaskRole

LINE = "worker-9 has another model than its job"


def world(**settings: object) -> World:
    return World(settings=SETTINGS.model_copy(update={"restarts": 3, "checkpoint_seconds": 1000, **settings}))


def end(world: World, task: str, exit_code: int) -> None:
    """A task's process ends so."""
    world.members.pop(task, None)
    world.take(world.machine.on_task_ended(task, exit_code, LINE, world.now))


def refuse(world: World, task: str) -> None:
    """A worker comes with a model that is none, and ends with what it is told."""
    _, outcome = world.machine.on_register(Newcomer(task, TaskRole.WORKER, 77, "{}", "{}", "{}"), world.now)
    world.take(outcome)
    end(world, task, 2)


@pytest.mark.parametrize("task", ["worker-1", "ps-0"])
@pytest.mark.parametrize("trains", [False, True])
def test_a_task_that_ends_with_2_ends_its_job_at_once(task: str, trains: bool) -> None:
    job = world().training() if trains else world()
    end(job, task, 2)
    assert job.views[-1].phase is JobPhase.FAILED
    assert job.views[-1].failure == f"{task}: {LINE}", "one failure, of which nothing has to be counted"


def test_a_script_that_says_that_its_input_is_bad_ends_its_job_at_once() -> None:
    job = world().training()
    worker = job.members.pop("worker-1")
    report = replace(worker.report, failure="worker-1: ModelMismatch: it grew", bad_input=True)
    job.take(job.machine.on_report(report, job.now)[1])
    assert job.views[-1].phase is JobPhase.FAILED
    assert job.views[-1].failure == "worker-1: ModelMismatch: it grew"
    end(job, "worker-1", 2)  # its process, then: it is said once
    assert job.machine.state.course.failures.total == 1


@pytest.mark.parametrize(("exit_code", "failures"), [(1, 1), (3, 0), (-9, 0), (137, 1), (-15, 0), (143, 0)])
def test_whoever_ends_otherwise_is_replaced(exit_code: int, failures: int) -> None:
    job = world().training()
    end(job, "worker-1", exit_code)
    assert job.machine.state.course.failures.total == failures
    job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2))


def test_who_was_told_to_go_may_end_as_it_likes() -> None:
    job = world().training()
    job.resize("shrink", 2, 1)
    job.rounds(lambda view: "worker-1" in view.leaving)
    end(job, "worker-1", 2)
    assert job.ended("shrink").state is RequestOutcome.DONE
    assert job.views[-1].phase is JobPhase.RUNNING


@pytest.mark.parametrize("when", ["refused", "warm", "proposed", "while a checkpoint is written"])
def test_a_newcomer_that_cannot_be_used_costs_its_resize_and_not_the_job(when: str) -> None:
    job = world(checkpoint_seconds=1 if "checkpoint" in when else 1000).training()
    before = len(job.views)
    job.resize("grow", 2, 3)
    if when == "refused":
        refuse(job, "worker-2")
    elif when == "while a checkpoint is written":
        start = job.start
        job.start = lambda task: None if task == "worker-2" else start(task)  # type: ignore[method-assign]
        job.rounds(lambda view: view.phase is JobPhase.RESIZING and job.machine.state.generation.moving > 0)
        assert job.views[-1].changes[-1].checkpoint
        job.start = start  # type: ignore[method-assign]
        refuse(job, "worker-2")
    else:
        warm = when == "warm"
        job.rounds(lambda view: bool(view.proposal) if not warm else "worker-2" in job.members)
        end(job, "worker-2", 2)
    row = job.ended("grow")
    assert (row.state, row.detail) == (RequestOutcome.ABORTED, f"worker-2: {LINE}; nothing changed")
    assert job.status().target == Size(2, 2)
    assert not job.views[-1].wanted
    assert {view.generation for view in job.views[before:]} == {1}
    assert not job.status().failure
    job.resize("again", 3, 3)
    assert job.ended("again").state is RequestOutcome.DONE
    assert job.status().size == Size(3, 3)
    job.until(JobPhase.FINISHED)


def test_a_member_of_the_plan_that_fails_so_in_a_resize_is_no_reason_to_give_the_resize_up() -> None:
    job = world().training()
    job.resize("grow", 3, 2)
    end(job, "worker-0", 2)
    assert job.views[-1].phase is JobPhase.FAILED


def test_a_resumed_job_whose_script_has_another_model_by_now_fails_at_once_and_keeps_its_checkpoint() -> None:
    job = world().training()
    job.take(job.machine.on_request(RequestState("suspend", "suspend"), job.now)[1])
    job.until(JobPhase.SUSPENDED)
    durable = job.machine.state.checkpoints.durable
    job.take(job.machine.on_request(RequestState("resume", "resume", target=Size(2, 2)), job.now)[1])
    refuse(job, job.views[-1].wanted[-1])
    assert job.views[-1].phase is JobPhase.FAILED
    assert job.machine.state.checkpoints.durable == durable


def raise_alike(job: World, task: str, words: str, step: int) -> None:
    """A worker's script raises, and says so."""
    worker = job.members.pop(task, None)
    assert worker is not None
    report = replace(worker.report, failure=f"{task}: {words}", step=step)
    job.take(job.machine.on_report(report, job.now)[1])


def test_all_workers_that_raise_alike_at_the_same_step_end_their_job_at_once() -> None:
    job = world(restarts=1000).training()
    raise_alike(job, "worker-0", "RuntimeError: shapes 8x10 and 12x4", 5)
    assert job.views[-1].phase is JobPhase.RUNNING
    raise_alike(job, "worker-1", "RuntimeError: shapes 9x10 and 12x4", 5)
    assert job.views[-1].phase is JobPhase.FAILED
    assert job.views[-1].failure == (
        "worker-1: RuntimeError: shapes 9x10 and 12x4 (all 2 workers failed alike at step 5 of 40)"
    )


@pytest.mark.parametrize(("words", "step"), [("RuntimeError: no disk", 5), ("RuntimeError: shapes 9x10", 6)])
def test_failures_of_another_kind_or_step_are_tried_again(words: str, step: int) -> None:
    job = world(restarts=1000).training()
    raise_alike(job, "worker-0", "RuntimeError: shapes 8x10", 5)
    raise_alike(job, "worker-1", words, step)
    assert job.views[-1].phase is not JobPhase.FAILED


def test_scripts_that_fail_before_they_join_end_their_job_after_one_try_each() -> None:
    job = world(restarts=1000)
    for task in ("worker-0", "worker-1"):
        job.take(job.machine.on_task_ended(task, 1, "ModuleNotFoundError: No module named 'pandas'", job.now))
    assert job.views[-1].failure == (
        "worker-1: ModuleNotFoundError: No module named 'pandas' (all 2 workers failed alike at step 0)"
    )


def test_a_script_that_ends_well_without_having_joined_ends_its_job_at_once() -> None:
    job = world(restarts=1000)
    job.take(job.machine.on_task_ended("worker-1", 0, "training done", job.now))
    assert job.views[-1].failure == (
        "worker-1: its script ended without having joined the job: it has to call elastic_runtime.join, and to train "
        "with what that gives it"
    )


def test_a_code_that_python_does_not_give_is_said_in_words() -> None:
    job = world(restarts=0).training()
    job.members.pop("worker-1")
    job.take(job.machine.on_task_ended("worker-1", 137, "", job.now))
    assert job.views[-1].failure.startswith("worker-1: ended with exit code 137 at step ")
    assert job.views[-1].failure.endswith(" of 40")


def test_workers_that_are_killed_at_the_same_step_again_and_again_end_their_job_long_before_the_last_loss() -> None:
    job = World(settings=SETTINGS.model_copy(update={"restarts": 1, "losses": 1000, "checkpoint_seconds": 1000}))
    killed = 0
    while job.views[-1].phase is not JobPhase.FAILED and killed < 50:
        job.take(job.machine.on_task_ended(f"worker-{killed}", -9, "", job.now))
        killed += 1
        job.pass_time(0.1)
    assert killed == 3, "more than one for each of two workers"
    assert job.views[-1].failure == (
        "worker-2 was ended by SIGKILL at step 0, most likely as memory ran out; 3 workers ended so at that step"
    )


def progress(job: World) -> None:
    """Another step becomes durable."""
    durable = job.machine.state.checkpoints.durable[-1]
    job.rounds(lambda _: job.machine.state.checkpoints.durable[-1] != durable)


def fail_one(job: World, number: int) -> None:
    """The newest worker's script fails, each time in other words."""
    task = max((task for task in job.members if task.startswith("worker")), key=lambda name: int(name[7:]))
    job.members.pop(task)
    job.take(job.machine.on_task_ended(task, 1, "ValueError: " + "o" * number, job.now))


def wait(job: World, seconds: float) -> None:
    """Time passes for those who are there."""
    job.pass_time(seconds)
    for member in list(job.members.values()):
        job.deliver(member)
        job.act(member)
        job.send(member)


def test_a_script_that_fails_now_and_then_goes_on_as_long_as_steps_become_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengthen(monkeypatch, 4000)
    job = world(restarts=1, checkpoint_seconds=1).training()
    for step in range(6):
        progress(job)
        fail_one(job, step)
        status = job.status()
        assert (status.failures, status.failures_in_a_row) == (step + 1, 1)
        job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2), 1000)
    assert status.last_failure.startswith("worker-6: ValueError: ooooo (at step ")
    progress(job)
    assert (job.status().failures, job.status().failures_in_a_row) == (6, 0)


def test_a_script_that_fails_without_progress_is_given_up_also_after_it_had_made_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengthen(monkeypatch, 4000)
    job = world(restarts=1, checkpoint_seconds=1).training()
    progress(job)
    fail_one(job, 0)
    progress(job)
    before = job.machine.state.checkpoints.durable[-1]
    for number in (1, 2):
        fail_one(job, number)
    assert job.machine.state.checkpoints.durable[-1] == before
    assert job.views[-1].phase is JobPhase.FAILED
    assert job.views[-1].failure.endswith("(2 failures, no step durable in between; 1 restart is allowed)")


@pytest.mark.heavy
def test_each_failure_makes_the_next_start_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    lengthen(monkeypatch, 4000)
    job = world(restarts=1000, checkpoint_seconds=1000).training()
    waits = []
    for step in range(9):
        fail_one(job, step)
        began = job.now
        while not job.views[-1].wanted:
            wait(job, 0.1)
            assert job.now - began < 100.0
        waits.append(job.now - began)
        job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2), 1000)
    pauses = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert all(pause <= waited < pause + 3.0 for pause, waited in zip(pauses, waits, strict=True)), waits


def test_a_resize_does_not_wait_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    lengthen(monkeypatch, 4000)
    job = world(restarts=1000).training()
    for number in range(4):
        fail_one(job, number)
        job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2), 1000)
    fail_one(job, 4)
    for _ in range(20):
        wait(job, 0.1)
    assert not job.views[-1].wanted
    job.resize("grow", 2, 3)
    for _ in range(20):
        wait(job, 0.1)
    assert len(job.views[-1].wanted) == 2


def test_who_asked_for_a_stop_and_ends_all_workers_gets_a_job_that_can_be_resumed() -> None:
    """As a service manager does, which sends SIGTERM to each process of a job."""
    job = world(restarts=0).training()
    job.take(job.machine.on_request(RequestState("stop", "suspend"), job.now)[1])
    for task in ("worker-0", "worker-1"):
        job.members.pop(task)
        job.take(job.machine.on_task_ended(task, 1, "KeyboardInterrupt", job.now))
    assert job.views[-1].phase is JobPhase.SUSPENDED
    assert job.status().failures == 0
    (row,) = job.status().requests
    assert row.state is RequestOutcome.DONE
    job.take(job.machine.on_request(RequestState("on", "resume", target=Size(2, 2)), job.now)[1])
    job.until(JobPhase.FINISHED)


@pytest.mark.parametrize("exit_code", [0, 1, 2, 143])
def test_whoever_ends_after_sigterm_was_drained_whatever_its_own_handler_makes_of_it(exit_code: int) -> None:
    job = world(restarts=0).training()
    member = job.members["worker-1"]
    member.report = replace(member.report, signalled=True)
    job.send(member)
    end(job, "worker-1", exit_code)
    assert job.machine.state.course.failures.total == 0
    job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2))


def test_an_error_that_a_handler_of_sigterm_raises_fails_nothing() -> None:
    job = world(restarts=0).training()
    member = job.members["worker-1"]
    member.report = replace(member.report, signalled=True, failure="worker-1: RuntimeError: told to go")
    job.send(member)
    end(job, "worker-1", 1)
    assert job.machine.state.course.failures.total == 0
    job.rounds(lambda view: view.phase is JobPhase.RUNNING and job.status().size == Size(2, 2))
