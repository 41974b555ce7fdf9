"""Every resize of a TrainingJob is told once: shorter than a look, while no agent was there, by one that was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from apiserver.asked import Asked, Fault
from apiserver.cluster import Cluster, Waits, running_cluster
from pretended_coordinators import Pretended
from simulated_ranks import RanksWorld
from simulated_training import World
from training_cluster import agent_of, install, status_of, submit, wait_size
from training_objects import job, job_object, spec

from cluster_agent.backends.kubernetes.training.step import Ask, CoordinatorReport, JobStanding, JobStep, Request
from cluster_agent.backends.kubernetes.training.story.reporter import (
    AGAIN_SECONDS,
    END_WAITS_SECONDS,
    ResizeMark,
    Resizes,
    mark_of,
    resizes_since,
)
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

UID = job_object()["metadata"]["uid"]


def row(number: int, workers: int, kind: str = "resize", state: RequestOutcome = RequestOutcome.DONE) -> RequestState:
    target = Size(1, workers) if workers else Size(0, 0)
    return RequestState(f"d{number}-{kind}", kind, state, target=target, began_unix_seconds=float(number))


def lines(mark: ResizeMark, *rows: RequestState) -> list[str]:
    return [each.line for each in resizes_since(mark, rows)[0]]


def test_what_was_done_since_is_found_with_the_sizes_before_and_after() -> None:
    rows = [row(1, 2), row(2, 4), row(3, 3, state=RequestOutcome.ABORTED), row(4, 2)]
    assert lines(ResizeMark(size=Size(1, 3)), *rows) == [
        "from 3 workers and 1 PS to 2 workers and 1 PS",
        "from 2 workers and 1 PS to 4 workers and 1 PS",
        "from 4 workers and 1 PS to 2 workers and 1 PS",
    ]
    job_report = resizes_since(ResizeMark(), rows[:2])[0][-1]
    after = ResizeMark(2, job_report.key, job_report.after)
    assert lines(after, *rows) == ["from 4 workers and 1 PS to 2 workers and 1 PS"]
    assert lines(after, *rows[1:]) == lines(after, *rows), "it has forgotten the oldest"
    assert lines(after, *rows[2:]) == lines(after, *rows), "and then the one that was told last"


def test_a_suspension_and_its_end_are_no_resizes_and_nobody_knows_the_size_before() -> None:
    rows = [row(1, 0, "suspend"), row(2, 4, "resume"), row(3, 2), row(4, 0, "suspend"), row(5, 3)]
    assert lines(ResizeMark(size=Size(1, 3)), *rows) == [
        "from 4 workers and 1 PS to 2 workers and 1 PS",
        "to 3 workers and 1 PS",
    ]


@pytest.mark.parametrize("stated", [None, 3, [], {"count": -1, "workers": "two"}, {"count": None, "last": 7}])
def test_a_status_that_somebody_else_wrote_is_no_trouble(stated: Any) -> None:
    found = mark_of(job(status={"resizes": stated}))
    assert (found.count, found.size) == (0, Size(0, 0))


class Events:
    """Takes what is told, or does not."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.then: list[Callable[[bool], None]] = []
        self.answer: bool | None = True

    def report_once(self, about: object, name: str, reason: str, line: str, then: Callable[[bool], None]) -> None:
        del about, reason, line
        self.names.append(name)
        self.then.append(then)
        if self.answer is not None:
            then(self.answer)


def test_an_event_that_was_refused_is_told_again_later_under_its_name_and_the_end_waits_a_little() -> None:
    events, now = Events(), [0.0]
    resizes = Resizes(events, lambda: now[0])  # type: ignore[arg-type]
    running, job_report = (
        JobStep(JobStanding.RUNNING),
        CoordinatorReport(JobStatus("digits", JobPhase.RUNNING, requests=(row(1, 2),)), 0.0),
    )
    events.answer = False
    assert resizes.poll(job(), running, job_report).count == 0
    assert not resizes.delays_end(job()), "a server that refuses Events holds up nothing"
    resizes.poll(job(), running, job_report)
    assert len(events.names) == 1
    now[0], events.answer = AGAIN_SECONDS, None
    assert resizes.poll(job(), running, None).count == 0, "also where its coordinator does not answer any more"
    assert (len(events.names), len(set(events.names))) == (2, 1)
    assert resizes.delays_end(job())
    now[0] += END_WAITS_SECONDS
    assert not resizes.delays_end(job())
    events.then[-1](True)
    assert resizes.poll(job(), running, job_report).count == 1
    assert len(events.names) == 2


def test_a_coordinator_that_makes_up_resizes_tells_few_at_once_and_one_that_lies_none() -> None:
    events = Events()
    resizes = Resizes(events, lambda: 0.0)  # type: ignore[arg-type]
    status = JobStatus("digits", JobPhase.RUNNING, requests=tuple(row(number, 2) for number in range(1000)))
    assert resizes.poll(job(), JobStep(JobStanding.RUNNING), CoordinatorReport(status, 0.0)).count == 10
    assert resizes.poll(job(), JobStep(JobStanding.RUNNING), CoordinatorReport(status, 0.0)).count == 20
    lies = replace(status, epoch=float("nan"))
    assert resizes.poll(job(), JobStep(JobStanding.RUNNING), CoordinatorReport(lies, 0.0)).count == 20


def grant(world: World, size: Allocation, number: int) -> None:
    world.controller.grant(UID, Granted(size, f"d{number}", "v1", "", 7, 1e9))


def go_on(world: World, looks: int = 6) -> None:
    for _ in range(looks):
        world.now += 10.0
        world.live()
        world.poll()


def test_resizes_between_two_looks_of_an_agent_that_is_followed_by_another() -> None:
    world = World(job_object())
    world.poll()
    grant(world, Allocation(2, 1), 0)
    go_on(world)
    assert (world.told_once, world.brain is not None) == ({}, True)
    world.start_agent()
    for number, size in enumerate((Size(1, 3), Size(1, 2))):  # asked by the one before, and carried out since
        assert world.brain is not None
        world.brain.ask(Ask(Request.RESIZE, f"before-{number}", size))
        for _ in range(2):
            world.brain.think({f"{role}-{count}" for role in ("ps", "worker") for count in range(9)})
        assert world.brain.phase is JobPhase.RUNNING
    go_on(world, 2)
    assert world.status["resizes"]["count"] == 2
    assert sorted(line for job_report in world.told_once.values() for _, line in job_report) == [
        "from 2 workers and 1 PS to 3 workers and 1 PS",
        "from 3 workers and 1 PS to 2 workers and 1 PS",
    ]
    world.start_agent()
    go_on(world)
    assert [len(job_report) for job_report in world.told_once.values()] == [1, 1], "its status says that they are told"


def test_a_gang_of_another_size_is_a_resize_and_one_after_a_suspension_is_not() -> None:
    world = RanksWorld()
    world.poll()
    for number, size in enumerate((2, 3, 0, 1, 2)):
        for _ in range(12):
            grant(world, Allocation(size) if size else SUSPENDED, number)
            go_on(world, 1)
            world.start_agent()  # after every look another one
    job_report = [line for each in world.told_once.values() for _, line in each]
    assert set(job_report) == {"from 2 workers to 3 workers", "from 1 worker to 2 workers"}
    assert (len(world.told_once), world.status["resizes"]["count"]) == (2, 2)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


def resized(cluster: Cluster) -> list[str]:
    return [each["message"] for each in cluster.all("events") if each["reason"] == "Resized"]


def test_on_an_api_server_each_resize_is_one_event_though_answers_are_lost_and_agents_follow_each_other(
    cluster: Cluster,
) -> None:
    lost: list[Asked] = []

    def faults(asked: Asked) -> Fault | None:
        if asked.resource != "events" or asked.verb != "create" or len(lost) == 2:
            return None
        lost.append(asked)
        return Fault(cut=True) if len(lost) == 1 else Fault(code=500)

    pretended = Pretended(cluster)
    submit(cluster, spec())
    with agent_of(cluster, connect=pretended) as agent:
        agent.decide(digits=Allocation(2, 1))
        agent.wait_second_try(2, 1)
        cluster.server.faults = faults
        agent.decide(digits=Allocation(4, 2))
        wait_size(cluster, 4, 2)
        agent.decide(digits=Allocation(3, 2))
        wait_size(cluster, 3, 2)
    with agent_of(cluster, connect=pretended, lease_epoch=8) as agent:
        cluster.wait(lambda: len(agent.observe()) == 1, "sight of it")
        agent.skip_pause()
        agent.decide(digits=Allocation(1, 1))
        wait_size(cluster, 1, 1)
        cluster.wait(lambda: status_of(cluster).get("resizes", {}).get("count") == 3, "all are told")
    assert sorted(resized(cluster)) == [
        "from 2 workers and 1 PS to 4 workers and 2 PSs",
        "from 3 workers and 2 PSs to 1 worker and 1 PS",
        "from 4 workers and 2 PSs to 3 workers and 2 PSs",
    ]
