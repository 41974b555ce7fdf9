"""The plan of a job, state by state: what is made, deleted, reported and asked for, and what people are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from training_objects import job

from cluster_agent.backends.kubernetes.training.plan import (
    GANG_SECONDS,
    KEPT_SECONDS,
    LEAVE_SECONDS,
    SILENT_SECONDS,
    plan,
)
from cluster_agent.backends.kubernetes.training.step import (
    AGAIN_SECONDS,
    CoordinatorReport,
    JobMemory,
    JobStanding,
    JobStep,
    SeenJob,
)
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size, TaskStatus
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
TWO, THREE = Allocation(2, 1), Allocation(3, 1)
STARTED = {"startTime": "2026-01-01T00:00:00Z"}
TRAINED = {**STARTED, "coordinator": "uid-coordinator"}


def pod(task: str, phase: str = "Running", **more: Any) -> TaskPod:
    return TaskPod("team", f"digits-{task}", "digits", task, f"uid-{task}", job().uid, phase, **more)


def pods(*tasks: str, **more: Any) -> list[TaskPod]:
    return [pod(task, **more) for task in tasks]


GANG = ("coordinator", "ps-0", "worker-0", "worker-1")


def status(phase: JobPhase = JobPhase.RUNNING, **more: Any) -> JobStatus:
    tasks = tuple(
        TaskStatus(task, TaskRole.WORKER if task.startswith("w") else TaskRole.SERVER, "member")
        for task in GANG
        if task[0] != "c"
    )
    return JobStatus("digits", phase, **{"size": Size(1, 2), "target": Size(1, 2), "tasks": tasks, **more})


def planned(
    found: TrainingJob,
    there: list[TaskPod],
    said: JobStatus | None = None,
    wanted: Allocation = TWO,
    memory: JobMemory | None = None,
    now: float = 1000.0,
) -> JobStep:
    job_report = None if said is None else CoordinatorReport(said, now)
    memory = JobMemory() if memory is None else memory
    return plan(SeenJob(found, wanted, tuple(there), job_report, memory, now, decision="d1"))


def test_a_job_begins_with_all_of_its_first_pods() -> None:
    step = planned(job(), [])
    assert (step.standing, step.create, step.relaunched) == (JobStanding.STARTING, GANG, False)
    assert step.is_gang


@pytest.mark.parametrize(
    ("more", "wanted", "standing", "line"),
    [
        ({}, SUSPENDED, JobStanding.QUEUED, "waits for resources"),
        ({"suspend": True}, SUSPENDED, JobStanding.SUSPENDED, "by its user"),
        ({"updateMode": "x"}, TWO, JobStanding.INVALID, "spec.updateMode"),
    ],
)
def test_a_job_that_may_not_begin_says_why(more: Json, wanted: Allocation, standing: JobStanding, line: str) -> None:
    step = planned(job(**more), [], wanted=wanted)
    assert (step.standing, step.create) == (standing, ())
    assert line in step.line


def test_pods_of_an_earlier_job_of_its_name_are_waited_for_and_left_alone() -> None:
    step = planned(job(), [replace(each, owner="another") for each in pods("worker-0")])
    assert (step.standing, step.create, step.delete) == (JobStanding.QUEUED, (), ())
    assert "earlier job" in step.line


def test_a_pod_with_copied_labels_is_none_of_its_own() -> None:
    copied = replace(pod("worker-0"), name="digits-worker-0-debug")
    assert planned(job(status=TRAINED), [*pods(*GANG), copied], status()).delete == ()


def test_with_a_journal_a_lost_coordinator_joins_its_tasks_and_without_one_they_go() -> None:
    left = pods("ps-0", "worker-0")
    step = planned(job(status=TRAINED), left)
    assert (step.create, step.relaunched, step.is_gang) == (("coordinator",), False, False)
    step = planned(job(status=TRAINED, coordinator={}), left)
    assert (step.create, len(step.delete)) == ((), 2)
    step = planned(job(status=TRAINED, coordinator={}), [])
    assert (step.create, step.relaunched) == (GANG, True)


def test_nothing_is_made_for_a_job_whose_templates_were_changed() -> None:
    found = job(status={**TRAINED, "templateDigest": "other"})
    assert planned(found, pods("ps-0", "worker-0")).create == ()
    step = planned(found, pods(*GANG), status(wanted=("worker-2",), target=Size(1, 3)))
    assert (step.create, step.ask, step.standing) == ((), None, JobStanding.RUNNING)
    assert "templates were changed" in step.line


def test_half_a_gang_is_given_back_when_its_patience_is_over_and_tried_again_later_and_later() -> None:
    memory, now, pauses = JobMemory(), 0.0, []
    for _ in range(4):
        there = [*pods("coordinator", "ps-0"), pod("worker-0", "Pending", trouble="ErrImagePull: none")]
        said = status(JobPhase.STARTING, tasks=(), wanted=("worker-0", "worker-1"))
        assert planned(job(status=STARTED), there, said, memory=memory, now=now).delete == ()
        now += GANG_SECONDS
        step = planned(job(status=STARTED), there, said, memory=memory, now=now)
        assert len(step.delete) == 3
        assert "worker-0: ErrImagePull: none" in step.line
        assert planned(job(status=STARTED), [], memory=memory, now=now).standing is JobStanding.QUEUED
        pauses.append(memory.not_before_seconds - now)
        now = memory.not_before_seconds
        assert planned(job(status=STARTED), [], memory=memory, now=now).is_gang
    assert pauses == [10.0, 20.0, 40.0, 80.0]


def test_a_gang_of_which_pods_are_not_even_made_is_given_back_too() -> None:
    memory, said = JobMemory(), status(JobPhase.STARTING, tasks=(), wanted=("ps-0", "worker-0"))
    step = planned(job(status=STARTED), pods("coordinator"), said, memory=memory, now=0.0)
    assert step.create == ("ps-0", "worker-0")
    step = planned(job(status=STARTED), pods("coordinator"), said, memory=memory, now=GANG_SECONDS)
    assert [each.task for each in step.delete] == ["coordinator"]


def test_what_is_left_of_a_gang_that_was_refused_goes_at_once_and_before_the_next_try() -> None:
    memory = JobMemory()
    memory.on_gang_failed("exceeded quota; it is tried again", 0.0)
    there = [pod("coordinator", deleting=True), *pods("ps-0", "worker-0")]
    step = planned(job(status=STARTED), there, memory=memory, now=1.0)
    assert (step.standing, step.line) == (JobStanding.QUEUED, "exceeded quota; it is tried again")
    assert ([each.task for each in step.delete], step.grace_seconds) == (["ps-0", "worker-0"], 1)
    said = status(JobPhase.STARTING, tasks=(), wanted=("worker-1",))
    step = planned(job(status=STARTED), pods("coordinator", "ps-0"), said, memory=memory, now=1.0)
    assert (step.create, [each.task for each in step.delete]) == ((), ["coordinator", "ps-0"])
    # Those that end are waited for, however long they take.
    going = [pod("ps-0", deleting=True)]
    assert planned(job(status=STARTED), going, memory=memory, now=60.0).create == ()
    assert planned(job(status=STARTED), [], memory=memory, now=60.0).is_gang


def test_what_trains_is_never_given_back_for_a_gang_that_was_refused() -> None:
    memory = JobMemory()
    memory.on_gang_failed("exceeded quota", 0.0)
    assert planned(job(status=TRAINED), pods(*GANG), memory=memory, now=1.0).delete == ()
    assert planned(job(status=STARTED), pods(*GANG), status(), memory=memory, now=1.0).delete == ()


def test_nothing_is_made_or_asked_while_its_coordinator_is_about_to_go() -> None:
    there = [pod("coordinator", deleting=True), *pods("ps-0")]
    step = planned(job(status=STARTED), there, status(JobPhase.STARTING, wanted=("worker-0",)))
    assert (step.create, step.ask, step.delete) == ((), None, ())


@pytest.mark.parametrize(
    ("code", "words", "standing", "line"),
    [
        (0, "finished: 3 epochs, 30 samples", JobStanding.COMPLETE, "3 epochs, 30 samples"),
        (1, "failed: worker-0: no data", JobStanding.FAILED, "worker-0: no data"),
        (1, "failed:", JobStanding.FAILED, "no reason was given"),
        (2, "no such folder", JobStanding.FAILED, "its coordinator cannot start: no such folder"),
        (-9, "", JobStanding.RECOVERING, "is replaced"),
        (0, "", JobStanding.RECOVERING, "is replaced"),
    ],
)
def test_how_a_coordinator_ended_is_how_the_job_did(code: int, words: str, standing: JobStanding, line: str) -> None:
    ended = pod("coordinator", "Failed" if code else "Succeeded", exit_code=code, last_words=words)
    step = planned(job(status=TRAINED), [ended])
    assert step.standing is standing
    assert line in step.line
    assert bool(step.outcome) == (standing in (JobStanding.COMPLETE, JobStanding.FAILED))


def test_a_coordinator_that_ends_at_once_is_not_made_again_at_once() -> None:
    memory = JobMemory()
    ended = pod("coordinator", "Failed", exit_code=1, last_words="ImportError: torch")
    step = planned(job(status=STARTED), [ended], memory=memory, now=0.0)
    assert (step.standing, step.delete) == (JobStanding.QUEUED, (ended,))
    assert "ImportError: torch" in step.line
    assert planned(job(status=STARTED), [], memory=memory, now=9.0).create == ()
    assert planned(job(status=STARTED), [], memory=memory, now=10.0).create


def test_a_worker_that_works_with_the_model_is_waited_for_and_one_that_never_ran_is_not() -> None:
    ended = pod("coordinator", "Succeeded", last_words="finished: 3 epochs, 30 samples")
    assert planned(job(status=TRAINED), [ended, pod("worker-0")]).outcome == ""
    assert planned(job(status=TRAINED), [ended, pod("worker-0", "Pending")]).outcome == "Complete"
    memory, said = JobMemory(), status(JobPhase.FINISHED, tasks=())
    there = pods("coordinator", "ps-0", "worker-0")
    planned(job(status=TRAINED), there, said, memory=memory, now=0.0)
    late = planned(job(status=TRAINED), there, said, memory=memory, now=10 * LEAVE_SECONDS)
    assert [each.task for each in late.delete] == ["ps-0"]


def test_ends_are_reported_and_logs_stay_for_a_while() -> None:
    memory = JobMemory()
    there = [*pods("coordinator", "ps-0", "worker-0"), pod("worker-1", "Failed", exit_code=3, last_words="oh")]
    (ended,) = planned(job(status=TRAINED), there, status(), memory=memory, now=0.0).report
    assert (ended.task, ended.exit_code, ended.last_words) == ("worker-1", 3, "oh")
    memory.reported.add(ended.uid)
    said = status(tasks=status().tasks[:2])
    assert planned(job(status=TRAINED), there, said, memory=memory, now=1.0).delete == ()
    (gone,) = planned(job(status=TRAINED), there, said, memory=memory, now=1.0 + KEPT_SECONDS).delete
    assert gone.task == "worker-1"


def test_a_member_without_a_pod_is_reported_as_killed() -> None:
    (ended,) = planned(job(status=TRAINED), pods("coordinator", "ps-0", "worker-0"), status()).report
    assert (ended.task, ended.exit_code, ended.uid) == ("worker-1", -9, "")


def row(number: int, state: RequestOutcome, size: str = "1x3", request: str = "resize") -> RequestState:
    return RequestState(f"d1-{request}-{size}-{number}", request, state, detail="no room")


def asked(*rows: RequestState, memory: JobMemory | None = None, wanted: Allocation = THREE) -> str:
    step = planned(job(status=TRAINED), pods(*GANG), status(requests=rows), wanted, memory)
    return "" if step.ask is None else step.ask.request_id


def test_an_id_is_used_for_one_thing_only() -> None:
    assert asked() == "d1-resize-1x3-0"
    assert asked(wanted=Allocation(4, 1)) == "d1-resize-1x4-0", "bounds were changed under the decision"
    assert asked(row(0, RequestOutcome.RUNNING)) == ""
    assert asked(row(0, RequestOutcome.DONE)) == "d1-resize-1x3-1", "it was there, and is not any more"
    assert asked(row(0, RequestOutcome.DONE), row(10, RequestOutcome.DONE)) == "d1-resize-1x3-11"
    assert asked(row(0, RequestOutcome.DONE, "1x4")) == "d1-resize-1x3-0"
    assert asked(row(0, RequestOutcome.DONE, "0x0", "suspend"), wanted=SUSPENDED) == "d1-suspend-0x0-1"


def test_what_was_given_up_is_asked_for_again_later_and_something_else_at_once() -> None:
    aborted, memory = row(0, RequestOutcome.ABORTED), JobMemory()
    assert asked(aborted, memory=memory) == "d1-resize-1x3-0", "to hear why"
    memory.on_requested("d1-resize-1x3-0", "no room", 1000.0)
    assert asked(aborted, memory=memory) == ""
    assert asked(aborted, memory=memory, wanted=SUSPENDED) == "d1-suspend-0x0-0"
    memory.retry_at -= AGAIN_SECONDS
    assert asked(aborted, memory=memory) == "d1-resize-1x3-1"


def test_a_coordinator_that_does_not_answer_does_not_keep_its_job_from_being_suspended() -> None:
    memory = JobMemory()
    assert planned(job(status=TRAINED, suspend=True), pods(*GANG), None, SUSPENDED, memory, 0.0).delete == ()
    step = planned(job(status=TRAINED, suspend=True), pods(*GANG), None, SUSPENDED, memory, SILENT_SECONDS)
    assert len(step.delete) == len(GANG)


def test_a_coordinator_that_wants_too_much_gets_what_a_job_may_have() -> None:
    wanted = ("../../x", "worker-01", "chief-0", *(f"worker-{number}" for number in range(2, 500)))
    step = planned(job(status=TRAINED), pods(*GANG), status(wanted=wanted))
    assert step.create == tuple(f"worker-{number}" for number in range(2, 8))


def test_a_job_that_is_over_makes_nothing_and_gives_back_what_runs() -> None:
    over = {**TRAINED, "conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    step = planned(job(status=over), [*pods("coordinator"), pod("worker-0", "Succeeded")], status(wanted=("worker-7",)))
    assert (step.standing, step.line, step.create) == (JobStanding.COMPLETE, "done", ())
    assert [each.task for each in step.delete] == ["coordinator"]
