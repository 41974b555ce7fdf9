"""Which of very many jobs are looked at in a step: those of which something is new, and the others in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from training_objects import job, job_object

from cluster_agent.backends.kubernetes.training.pace import POLLS_A_SECOND, STEP_SECONDS, JobPace
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

TWO = Allocation(2, 1)
TRAINS = JobStep(JobStanding.RUNNING)
GRANTED = Granted(TWO, "d1", "v1", "", 7, 1e9)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def jobs(count: int) -> list[TrainingJob]:
    return [training_job(job_object(f"job-{number:04}", f"uid-{number}")) for number in range(count)]


def pod(found: TrainingJob, phase: str = "Running") -> TaskPod:
    return TaskPod("team", f"{found.name}-worker-0", found.name, "worker-0", "uid-pod", found.uid, phase)


def job_report(at: float, workers: int = 2, samples: int = 0) -> CoordinatorReport:
    return CoordinatorReport(
        JobStatus("digits", JobPhase.RUNNING, size=Size(1, 2), target=Size(1, workers), samples=samples), at
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> JobPace:
    return JobPace(clock)


def test_few_jobs_are_all_looked_at_in_every_step(pace: JobPace) -> None:
    few = jobs(100)
    pace.begin(few)
    for each in few:
        pace.note(each, [], job_report(1.0), GRANTED, TRAINS, TWO)
    assert not any(pace.is_at_rest(each, [], job_report(1.0), GRANTED) for each in pace.begin(few))


def test_of_many_those_at_rest_are_looked_at_in_turn(clock: Clock, pace: JobPace) -> None:
    many = jobs(2000)
    pace.begin(many)
    for each in many:
        pace.note(each, [pod(each)], job_report(1.0), GRANTED, TRAINS, TWO)
    clock.now += 1.0
    ordered = pace.begin(many)
    assert all(pace.is_at_rest(each, [pod(each)], job_report(2.0, samples=5), GRANTED) for each in ordered), (
        "it trains on"
    )
    clock.now += len(many) / POLLS_A_SECOND
    assert not any(pace.is_at_rest(each, [pod(each)], job_report(3.0), GRANTED) for each in pace.begin(many))


def test_whatever_is_new_of_a_job_has_it_looked_at(pace: JobPace) -> None:
    many = jobs(2000)
    pace.begin(many)
    found = many[0]
    pace.note(found, [pod(found)], job_report(1.0), GRANTED, TRAINS, TWO)
    assert pace.is_at_rest(found, [pod(found)], job_report(1.0), GRANTED)
    assert not pace.is_at_rest(replace(found, version="2"), [pod(found)], job_report(1.0), GRANTED)
    assert not pace.is_at_rest(found, [pod(found, "Failed")], job_report(1.0), GRANTED)
    assert not pace.is_at_rest(found, [], job_report(1.0), GRANTED)
    assert not pace.is_at_rest(found, [pod(found)], job_report(1.0, 3), GRANTED)
    assert not pace.is_at_rest(found, [pod(found)], None, GRANTED)
    assert not pace.is_at_rest(found, [pod(found)], job_report(1.0), replace(GRANTED, decision="d2"))


@pytest.mark.parametrize(
    ("step", "wanted", "rests"),
    [
        (TRAINS, TWO, True),
        (JobStep(JobStanding.RUNNING, create=("worker-2",)), TWO, False),
        (JobStep(JobStanding.STARTING), TWO, False),
        (JobStep(JobStanding.QUEUED), SUSPENDED, True),
        (JobStep(JobStanding.QUEUED, "waits for room for its first pods"), TWO, False),
        (JobStep(JobStanding.SUSPENDING), SUSPENDED, False),
    ],
)
def test_who_waits_for_something_does_not_rest(pace: JobPace, step: JobStep, wanted: Allocation, rests: bool) -> None:
    many = jobs(2000)
    pace.begin(many)
    pace.note(many[0], [], job_report(1.0), None, step, wanted)
    assert pace.is_at_rest(many[0], [], job_report(1.0), None) is rests


def test_a_job_of_kueues_does_not_rest(pace: JobPace) -> None:
    pace.begin(jobs(2000))
    queued = job(kueue={"queueName": "team"})
    pace.note(queued, [], job_report(1.0), None, TRAINS, TWO)
    assert not pace.is_at_rest(queued, [], job_report(1.0), None)


def test_whom_a_long_step_has_not_come_to_is_first_in_the_next(clock: Clock, pace: JobPace) -> None:
    several = jobs(5)
    assert pace.begin(several[::-1]) == several, "the oldest first"
    assert not pace.is_over(several[3:])
    clock.now += STEP_SECONDS
    assert pace.is_over(several[3:])
    assert pace.begin(several) == [*several[3:], *several[:3]]
    assert pace.begin(several) == several
