"""The plan of an all-reduce job, state by state: which ranks are made and deleted, and what counts as a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_ranks import LOST, ring_object

from cluster_agent.backends.kubernetes.training.plan import GANG_SECONDS
from cluster_agent.backends.kubernetes.training.ranks import SILENT_SECONDS, GangStep, notes_of, plan_ranks
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobMemory, JobStanding, SeenJob
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
TWO, THREE = Allocation(2), Allocation(3)
UNIX = 1_800_000_000.0
STARTED = {"startTime": "2026-01-01T00:00:00Z", "ranks": {"gang": 1}}
TRAINED = {**STARTED, "coordinator": "uid-0"}


def job(**more: Any) -> TrainingJob:
    found = training_job(ring_object(**more))
    assert not more.get("sound", True) or not found.problem or "templates" in found.problem, found.problem
    return found


def pod(rank: int, phase: str = "Running", **more: Any) -> TaskPod:
    stated = {"gang": 1, "world": 2, **more}
    task = f"worker-{rank}"
    return TaskPod("team", f"digits-{task}", "digits", task, f"uid-{rank}", job().uid, phase, **stated)


def ended(rank: int, code: int = 0, words: str = "", **more: Any) -> TaskPod:
    return pod(rank, "Failed" if code else "Succeeded", exit_code=code, last_words=words, **more)


BOTH = [pod(0), pod(1)]
SAYS = JobStatus("digits", JobPhase.RUNNING, 1, 5, 400, 0.5, 40.0, size=Size(0, 2), target=Size(0, 2), samples=50)


def planned(
    found: TrainingJob,
    there: list[TaskPod],
    said: JobStatus | None = SAYS,
    wanted: Allocation = TWO,
    memory: JobMemory | None = None,
    now: float = 1000.0,
    unix: float = UNIX,
) -> GangStep:
    job_report = None if said is None else CoordinatorReport(said, now)
    memory = JobMemory() if memory is None else memory
    return plan_ranks(SeenJob(found, wanted, tuple(there), job_report, memory, now, unix))


def left(step: GangStep) -> list[str]:
    return [each.task for each in step.delete]


def test_a_gang_is_all_ranks_and_has_the_next_number() -> None:
    step = planned(job(), [], wanted=THREE)
    assert (step.standing, step.create) == (JobStanding.STARTING, ("worker-0", "worker-1", "worker-2"))
    assert (step.gang, step.world, step.notes["gang"], step.is_gang, step.needs) == (1, 3, 1, True, step.create)
    assert planned(job(status={"ranks": {"gang": 41}}), []).gang == 42
    assert planned(job(status={"ranks": {"gang": "many"}}), []).gang == 1


@pytest.mark.parametrize(
    ("more", "wanted", "standing", "line"),
    [
        ({}, SUSPENDED, JobStanding.QUEUED, "waits for resources"),
        ({"suspend": True}, SUSPENDED, JobStanding.SUSPENDED, "by its user"),
        ({"status": {**STARTED, "templateDigest": "other"}}, TWO, JobStanding.INVALID, "templates were changed"),
    ],
)
def test_a_job_that_may_not_begin_says_why(more: Json, wanted: Allocation, standing: JobStanding, line: str) -> None:
    step = planned(job(**more), [], wanted=wanted)
    assert (step.standing, step.create) == (standing, ())
    assert line in step.line


def test_another_size_is_another_gang_once_no_pod_is_left() -> None:
    step = planned(job(status=TRAINED), BOTH, wanted=THREE)
    assert (step.standing, left(step), step.create, step.grows) == (
        JobStanding.RESIZING,
        ["worker-0", "worker-1"],
        (),
        1,
    )
    assert step.grace_seconds is None, "they have a checkpoint to write"
    going = [pod(0, deleting=True), pod(1)]
    step = planned(job(status=TRAINED), going, wanted=THREE)
    assert (step.standing, left(step), step.create) == (JobStanding.RESIZING, ["worker-1"], ())
    step = planned(job(status=TRAINED), [pod(0, deleting=True)], wanted=THREE)
    assert (left(step), step.create) == ([], ())
    assert planned(job(status=TRAINED), [], wanted=THREE).world == 3


def test_without_checkpoints_a_size_stays_as_it_began_and_it_is_given_back_only_when_asked() -> None:
    found = job(checkpoints=None, status=TRAINED)
    assert planned(found, BOTH, wanted=THREE).delete == ()
    assert planned(found, [pod(0, "Pending"), pod(1)], wanted=THREE).standing is JobStanding.RESIZING, (
        "none has trained"
    )
    assert left(planned(found, BOTH, wanted=SUSPENDED)) == ["worker-0", "worker-1"]


def test_a_rank_that_is_told_to_go_by_somebody_takes_the_others_with_it_and_counts_as_no_failure() -> None:
    found = job(status=TRAINED)
    for there in (
        [pod(0), pod(1, deleting=True)],
        [pod(0), ended(1, words="stopped: 1 epochs, 10 samples")],
        [ended(0, 1, LOST), pod(1, deleting=True)],
        [ended(0, 1, LOST)],
        [pod(0), ended(1, -9, disrupted=True)],
        [ended(0, disrupted=True), ended(1, disrupted=True)],
        [ended(0, words="stopped: it was told to end"), ended(1, words="stopped: it was told to end")],
        [pod(0)],
        [pod(0), pod(1, gang=2)],
        [pod(0), pod(1), pod(7)],
    ):
        step = planned(found, there)
        assert step.standing is JobStanding.RECOVERING, there
        assert (step.create, step.notes, step.outcome) == ((), {}, "")
        assert left(step) == [each.task for each in there if not each.deleting]


def test_a_failure_is_counted_once_and_told_by_who_failed_first() -> None:
    there = [ended(0, 1, LOST, ended_at="t1"), ended(1, 3, "ValueError: no data", ended_at="t2")]
    step = planned(job(status={**TRAINED, "progress": {"samples": 70}}), there)
    assert (step.standing, step.grace_seconds) == (JobStanding.RECOVERING, 5)
    assert step.line == "worker-1 ended with exit code 3: ValueError: no data"
    assert {**step.notes, "reason": ""} == {
        "gang": 1,
        "failures": 1,
        "failedGang": 1,
        "samples": 70,
        "failedUnixSeconds": int(UNIX),
        "reason": "",
        "totalFailures": 1,
        "recentFailures": 1,
    }
    again = planned(job(status={**TRAINED, "ranks": step.notes}), there)
    assert (again.notes, left(again)) == ({}, ["worker-0", "worker-1"])


@pytest.mark.parametrize(("samples", "failures"), [(70, 3), (50, 3), (71, 1)])
def test_what_was_trained_in_between_makes_a_failure_the_first_again(samples: int, failures: int) -> None:
    ranks = {"gang": 5, "failures": 2, "failedGang": 4, "samples": 70}
    found = job(status={**TRAINED, "ranks": ranks, "progress": {"samples": samples}})
    step = planned(found, [ended(0, 1, gang=5), pod(1, gang=5)])
    assert step.notes["failures"] == failures


def test_failures_with_progress_in_between_are_counted_and_slow_the_next_start() -> None:
    status: Json = {**TRAINED, "progress": {"samples": 0}}
    pauses = []
    for number in range(1, 6):
        status["progress"] = {"samples": 100 * number}
        there = [ended(0, 1, "ValueError: no data", gang=number), pod(1, gang=number)]
        step = planned(job(status=status), there, unix=UNIX + 60.0 * number)
        assert (step.outcome, step.notes["failures"], step.notes["totalFailures"]) == ("", 1, number)
        status["ranks"] = step.notes
        pauses.append(notes_of(job(status=status)).again_unix_seconds - UNIX - 60.0 * number)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0]


@pytest.mark.parametrize(("limit", "before", "over"), [(3, 2, False), (3, 3, True), (0, 0, True), (100, 99, False)])
def test_after_its_limit_of_failures_a_job_has_failed(limit: int, before: int, over: bool) -> None:
    found = job(backoffLimit=limit, status={**TRAINED, "ranks": {"gang": 9, "failures": before, "failedGang": 8}})
    step = planned(found, [ended(0, 1, "no", gang=9), pod(1, gang=9)])
    assert (step.outcome == "Failed") == over
    assert "worker-0 ended with exit code 1: no" in step.line


def test_wrong_usage_is_not_tried_again() -> None:
    step = planned(job(status=STARTED), [ended(0, 1, LOST), ended(1, 2, "error: unrecognized arguments: --epoch")])
    assert (step.standing, step.outcome) == (JobStanding.FAILED, "Failed")
    assert "worker-1 ended with exit code 2: error: unrecognized arguments" in step.line


def test_each_failure_doubles_the_pause() -> None:
    for failures, pause in ((1, 10.0), (2, 20.0), (4, 80.0), (50, 600.0)):
        ranks = {"gang": 3, "failures": failures, "failedGang": 3, "failedUnixSeconds": int(UNIX), "reason": "no data"}
        found = job(status={**TRAINED, "ranks": ranks})
        waits = planned(found, [], unix=UNIX + pause - 1.0)
        assert (waits.standing, waits.create) == (JobStanding.RECOVERING, ())
        assert "no data" in waits.line
        assert planned(found, [], unix=UNIX + pause).create
        ranks["gang"] = 4
        assert planned(job(status={**TRAINED, "ranks": ranks}), []).create, "it was for the gang before"


@pytest.mark.parametrize(
    ("there", "complete"),
    [
        ([ended(0, words="finished: 3 epochs, 30 samples"), ended(1, words="finished: 3 epochs, 30 samples")], True),
        ([ended(0, words="finished: 3 epochs, 30 samples")], True),
        ([ended(0, words="finished: 3 epochs, 30 samples", deleting=True), ended(1)], True),
        ([ended(0, words="finished: 3 epochs, 30 samples"), pod(1)], False),
        ([ended(0), ended(1)], True),
        ([ended(0)], False),
        ([ended(0, deleting=True), ended(1, deleting=True)], False),
        ([ended(0, words="stopped: 1 epochs, 10 samples"), ended(1)], False),
        ([ended(0, disrupted=True), ended(1, disrupted=True)], False),
        ([ended(0, words="stopped: it was told to end"), ended(1, words="stopped: it was told to end")], False),
        ([ended(0, words="finished: 3 epochs, 30 samples", disrupted=True), ended(1)], True),
        ([ended(1, words="finished: 3 epochs, 30 samples"), pod(0)], False),
    ],
)
def test_a_job_is_complete_when_its_ranks_came_to_the_end_and_were_not_told_to(
    there: list[TaskPod], complete: bool
) -> None:
    step = planned(job(status=TRAINED), there, None)
    assert (step.outcome == "Complete") == complete
    if complete:
        assert step.line in ("3 epochs, 30 samples", "all of its 2 ranks ended well")


def test_who_still_works_with_the_model_is_let_be() -> None:
    there = [pod(0), ended(1, words="finished: 3 epochs, 30 samples")]
    step = planned(job(status=TRAINED), there, None, wanted=THREE)
    assert (step.standing, step.delete, step.line) == (JobStanding.RUNNING, (), "worker-0 still works with the model")
    step = planned(job(status=TRAINED), BOTH, replace(SAYS, phase=JobPhase.FINISHED), wanted=THREE)
    assert (step.standing, step.delete) == (JobStanding.RUNNING, ())


def test_half_a_gang_is_completed_while_it_is_made_and_given_back_when_it_does_not_come() -> None:
    memory, half = JobMemory(), [pod(0, "Pending", trouble="ErrImagePull: none")]
    step = planned(job(status=STARTED), half, None, memory=memory, now=0.0)
    assert (step.create, step.gang, step.world, step.notes) == (("worker-1",), 1, 2, {})
    step = planned(job(status=STARTED), [*half, pod(1)], None, memory=memory, now=GANG_SECONDS)
    assert (step.standing, left(step)) == (JobStanding.QUEUED, ["worker-0", "worker-1"])
    assert "worker-0: ErrImagePull: none" in step.line
    assert planned(job(status=STARTED), [], None, memory=memory, now=GANG_SECONDS).create == ()
    assert planned(job(status=STARTED), [pod(0)], None, memory=JobMemory()).create == (), (
        "it may have trained with another"
    )


def test_it_trains_when_its_first_rank_says_so_or_says_nothing_for_long() -> None:
    memory = JobMemory()
    starting = replace(SAYS, phase=JobPhase.STARTING)
    assert planned(job(status=STARTED), BOTH, starting).standing is JobStanding.STARTING
    assert planned(job(status=STARTED), BOTH, SAYS).standing is JobStanding.RUNNING
    assert planned(job(status=STARTED), BOTH, None, THREE, memory, 0.0).standing is JobStanding.STARTING
    late = planned(job(status=STARTED), BOTH, None, TWO, memory, SILENT_SECONDS)
    assert (late.standing, late.world) == (JobStanding.RUNNING, 2)
    assert planned(job(status=TRAINED), BOTH, None).standing is JobStanding.RUNNING, (
        "the agent before has seen it train"
    )


def test_a_job_that_is_over_makes_nothing_and_keeps_the_logs() -> None:
    over = {**TRAINED, "conditions": [{"type": "Failed", "status": "True", "message": "no"}]}
    step = planned(job(status=over), [ended(0, 1), pod(1)])
    assert (step.standing, step.line, step.create, left(step)) == (JobStanding.FAILED, "no", (), ["worker-1"])


def test_pods_that_are_not_its_own_are_let_be() -> None:
    copied = replace(pod(0), name="digits-worker-0-debug")
    other = replace(pod(1), owner="another")
    assert planned(job(status=TRAINED), [*BOTH, copied]).delete == ()
    step = planned(job(), [other])
    assert (step.create, step.delete) == ((), ())
    assert "earlier job" in step.line


phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
a_pod = st.builds(
    pod,
    st.integers(0, 4),
    phases,
    gang=st.integers(0, 2),
    world=st.integers(0, 4),
    deleting=st.booleans(),
    exit_code=st.sampled_from([0, 1, 2, -9]),
    last_words=st.sampled_from(["", "stopped: 1 epochs, 1 samples", "finished: 1 epochs, 1 samples", LOST]),
    disrupted=st.booleans(),
)


@given(
    st.lists(a_pod, max_size=5, unique_by=lambda each: each.task),
    st.sampled_from([SUSPENDED, Allocation(1), TWO, THREE]),
    st.booleans(),
    st.none() | st.sampled_from([SAYS, replace(SAYS, phase=JobPhase.STARTING)]),
)
def test_whatever_is_there_no_rank_is_made_twice_or_beside_those_of_another_gang(
    there: list[TaskPod], wanted: Allocation, checkpoints: bool, said: JobStatus | None
) -> None:
    found = job(status=TRAINED, **({} if checkpoints else {"checkpoints": None}))
    step = planned(found, there, said, wanted)
    tasks = {each.task for each in there}
    assert not tasks & set(step.create)
    if step.create:
        assert not step.delete
        assert not any(each.deleting or each.ended for each in there)
        assert {(each.gang, each.world) for each in there} <= {(step.gang, step.world)}
        assert tasks | set(step.create) == {f"worker-{rank}" for rank in range(step.world)}
        assert step.world == wanted.workers
    assert not any(each.deleting for each in step.delete)
    if step.outcome == "Complete":
        assert all(each.ended and each.exit_code == 0 for each in there)
    assert notes_of(found).gang == 1
