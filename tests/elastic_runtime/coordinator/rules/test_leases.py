"""Samples of asynchronous training: no answer has to arrive, and what a lost worker held is lent again."""

from dataclasses import replace
from typing import Any

import pytest

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.coordinator.rules import leases, members
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.registering import Newcomer, register
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import (
    Checkpoints,
    CoordinatorState,
    Course,
    Generation,
    Leases,
    Roster,
    Task,
    TaskState,
)
from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, Plan, TaskRole

SETTINGS = CoordinatorSettings(job="j", servers=1, workers=2)
LAYOUT = build_layout([TensorSpec("w", (4,), "float32")], []).to_json().decode()


def training(**changes: Any) -> str:
    chosen = {"global_batch": 4, "worker_batch": 4, "synchronous": False, **changes}
    return Training(optimizer=SGD(0.1), samples=20, epochs=1, **chosen).to_json().decode()


def job(training_json: str = "") -> CoordinatedJob:
    """Two workers that train."""
    state = CoordinatorState(course=Course(phase=JobPhase.RUNNING))
    names = ("worker-0", "worker-1")
    state.roster = Roster({name: Task(name, TaskRole.WORKER, TaskState.LIVE, 7) for name in names})
    state.model = replace(state.model, layout_json=LAYOUT, training_json=training_json or training())
    state.generation = Generation(1, start_plan=Plan(names, ("ps-0",)))
    return CoordinatedJob(SETTINGS, state, lambda: 0.0)


def ranges(answer: tuple[Any, bool]) -> list[tuple[int, int]]:
    return [(lent.start, lent.stop) for lent in answer[0]]


def test_the_answer_is_all_that_is_held_however_often_it_is_asked_for() -> None:
    running = job()
    first = leases.lend(running, "worker-0", 7, 1, (), 2)
    assert ranges(first) == [(0, 4), (4, 8)]
    assert leases.lend(running, "worker-0", 7, 1, (), 2) == first
    assert leases.lend(running, "worker-0", 7, 1, (), 0) == first
    assert ranges(leases.lend(running, "worker-1", 7, 1, (), 1)) == [(8, 12)]
    reported = (first[0][0].id,)
    assert ranges(leases.lend(running, "worker-0", 7, 1, reported, 2)) == [(4, 8), (12, 16)]
    assert ranges(leases.lend(running, "worker-0", 7, 1, reported, 2)) == [(4, 8), (12, 16)]
    assert leases.samples_done(running) == 4


def test_who_is_not_of_this_generation_gets_nothing_and_nothing_is_counted() -> None:
    running = job()
    held, _ = leases.lend(running, "worker-0", 7, 1, (), 1)
    for worker, incarnation, generation in (("worker-0", 8, 1), ("worker-0", 7, 2), ("worker-9", 7, 1)):
        assert leases.lend(running, worker, incarnation, generation, (held[0].id,), 3) == ((), False)
    assert leases.samples_done(running) == 0
    with pytest.raises(BadInput, match="trains synchronously"):
        leases.lend(job(training(synchronous=True, worker_batch=None)), "worker-0", 7, 1, (), 1)


def test_a_lost_workers_batches_are_lent_first_and_the_end_is_when_all_is_told() -> None:
    running = job()
    leases.lend(running, "worker-0", 7, 1, (), 3)
    leases.on_worker_lost(running, "worker-0")
    held, finished = leases.lend(running, "worker-1", 7, 1, (), 9)
    assert ([(lent.start, lent.stop) for lent in held], finished) == ([(k, k + 4) for k in range(0, 20, 4)], False)
    reported = tuple(lent.id for lent in held)
    assert leases.lend(running, "worker-1", 7, 1, reported[:4], 9)[1] is False
    assert not running.state.generation.ended
    assert leases.lend(running, "worker-1", 7, 1, reported, 9) == ((), True)
    assert running.state.generation.ended


def test_a_job_that_goes_back_lends_again_what_was_done_since_the_checkpoint() -> None:
    running = job()
    held, _ = leases.lend(running, "worker-0", 7, 1, (), 2)
    leases.lend(running, "worker-0", 7, 1, (held[0].id,), 0)
    checkpoint = running.state.leases.book_json
    leases.lend(running, "worker-0", 7, 1, (held[1].id,), 2)
    leases.go_back(running, checkpoint)
    assert leases.samples_done(running) == 4
    assert ranges(leases.lend(running, "worker-1", 7, 1, (), 2)) == [(4, 8), (8, 12)]


def test_a_restored_job_goes_on_with_the_samples_that_were_left_and_with_no_others() -> None:
    earlier = job()
    held, _ = leases.lend(earlier, "worker-0", 7, 1, (), 2)
    leases.lend(earlier, "worker-0", 7, 1, (held[0].id,), 2)
    book = earlier.state.leases.book_json
    state = CoordinatorState(checkpoints=Checkpoints(durable=(("step-5", 5),), book_json=book), leases=Leases(book))
    state.roster = Roster({"worker-0": Task("worker-0", TaskRole.WORKER)})
    restored = CoordinatedJob(SETTINGS, state, lambda: 0.0)
    other = Newcomer("worker-0", TaskRole.WORKER, 7, "{}", LAYOUT, training(worker_batch=5, global_batch=5))
    assert "batch 4, and this job has 5" in register(restored, other, 0.0)
    assert register(restored, replace(other, training_json=training()), 0.0) == ""
    assert leases.samples_done(restored) == 4


@pytest.mark.parametrize("others", [(), ("ps-0",)])
def test_a_worker_that_alone_does_not_reach_the_server_is_lost_and_its_batches_go_to_others(
    others: tuple[str, ...],
) -> None:
    running = job()
    running.put(replace(Task("ps-0", TaskRole.SERVER), state=TaskState.LIVE, incarnation=7))
    leases.lend(running, "worker-0", 7, 1, (), 3)
    for seconds in range(40):
        for name, suspects in (("worker-0", ("ps-0",)), ("worker-1", others), ("ps-0", ())):
            if running.is_alive(name):
                running.reports.expect(name, 7, float(seconds))
                members.on_report(running, MemberReport(name, 7, generation=1, suspects=suspects), float(seconds))
        members.watch(running, float(seconds))
    # If nobody reaches the server, it is the server.
    assert [name for name in ("worker-0", "worker-1", "ps-0") if not running.is_alive(name)] == (
        ["ps-0"] if others else ["worker-0"]
    )
    held, _ = leases.lend(running, "worker-1", 7, 1, (), 9)
    assert (len(held) == 5) is not bool(others)
