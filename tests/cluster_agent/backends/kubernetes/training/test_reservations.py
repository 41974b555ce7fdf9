"""Room that was promised: two jobs that grow at the same time never get the same, whenever their pods come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from apiserver.cluster import Cluster, Node, Waits, running_cluster
from hypothesis import given
from hypothesis import strategies as st
from pretended_coordinators import Pretended
from training_cluster import Agent, agent_of, install, pods_of, status_of, submit, wait_size
from training_objects import job, spec, template

from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity, PodNeed, promised, reserve
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobMemory
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, requests_of
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation

WORKER = requests_of(template()["spec"], {})
CPU = 500
"""Of a worker, and of a PS."""


def pod(task: str, **more: object) -> TaskPod:
    found = TaskPod("team", f"digits-{task}", "digits", task, f"uid-{task}", job().uid, "Running", node="a")
    return replace(found, **more)


def job_report(
    target: Size, phase: JobPhase = JobPhase.RUNNING, leaving: tuple[str, ...] = (), at: float = 0.0
) -> CoordinatorReport:
    return CoordinatorReport(JobStatus("digits", phase, target=target, leaving=leaving), at)


def free_capacity(workers: int, seen: list[TaskPod]) -> ClusterCapacity:
    """A node for so many workers, of whose pods these are seen."""
    node = NodeFacts("a", (("cpu", CPU * workers), ("memory", 1 << 40), ("pods", 100)), (), False, "")
    pods = [PodFacts("a", WORKER, job().uid, "Running", False) for _ in seen]
    return ClusterCapacity([node], pods, {(each.namespace, each.name) for each in seen})


def left(found: ClusterCapacity) -> int:
    """For how many workers there is room."""
    return next(count for count in range(100) if not found.take([PodNeed(WORKER)]))


PODS = [pod("ps-0"), pod("worker-0")]
LEADER = pod("coordinator")


def taken(
    says: CoordinatorReport | None, memory: JobMemory, pods: list[TaskPod], seen: list[TaskPod] | None = None
) -> int:
    """For how many workers room is taken beside the pods that are seen."""
    seen = [LEADER, *(pods if seen is None else seen)]
    bare, found = free_capacity(20, seen), free_capacity(20, seen)
    reserve(found, job(status={"startTime": "x"}), [LEADER, *pods], says, memory, 100.0)
    return left(bare) - left(found)


def test_growth_that_was_asked_for_has_its_room_before_its_coordinator_says_so_and_until_its_pods_are_seen() -> None:
    memory = JobMemory()
    memory.requested = Size(1, 3), 99.0
    before = job_report(Size(1, 1))
    assert taken(before, memory, PODS) == 2
    assert taken(job_report(Size(1, 3)), memory, PODS) == 2, "it says so"
    assert taken(job_report(Size(1, 3)), memory, [*PODS, pod("worker-1")]) == 1
    more = [*PODS, pod("worker-1"), pod("worker-2")]
    assert taken(job_report(Size(1, 3)), memory, more) == 0
    assert taken(job_report(Size(1, 3)), memory, more, seen=PODS) == 2, "they are made, and nobody sees them yet"


def test_what_leaves_does_not_stand_for_what_comes() -> None:
    pods = [*PODS, pod("worker-1")]
    assert taken(job_report(Size(1, 2), leaving=("worker-0",)), JobMemory(), pods) == 1
    assert taken(job_report(Size(1, 2)), JobMemory(), [*PODS, pod("worker-1", deleting=True)]) == 1
    assert taken(job_report(Size(1, 2)), JobMemory(), [*PODS, pod("worker-1", phase="Failed")]) == 1


def test_a_coordinator_that_is_silent_is_taken_at_its_last_word() -> None:
    memory = JobMemory()
    assert taken(job_report(Size(1, 3)), memory, PODS) == 2
    assert taken(None, memory, PODS) == 2
    granted = {"allocation": {"workers": 4, "ps": 1}}
    assert promised(job(status=granted), None, JobMemory(), 0.0) == Size(1, 4), "an agent that has just begun"


@pytest.mark.parametrize("phase", [JobPhase.SUSPENDING, JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED])
def test_a_job_that_gives_back_what_it_has_reserves_nothing(phase: JobPhase) -> None:
    assert taken(job_report(Size(1, 3), phase), JobMemory(), PODS) == 0


def test_what_was_asked_and_not_taken_up_is_given_up() -> None:
    memory = JobMemory()
    memory.requested = Size(1, 3), 60.0
    assert taken(job_report(Size(1, 1)), memory, PODS) == 0
    memory.requested = Size(1, 3), 99.0
    memory.on_requested("1-resize-1x3-0", "no", 100.0)
    assert taken(job_report(Size(1, 1)), memory, PODS) == 0


def test_a_coordinator_that_lies_gets_no_more_than_its_job_may_have() -> None:
    assert taken(job_report(Size(2, 200)), JobMemory(), PODS) == 4 - 1 + 2 - 1
    falsehood = CoordinatorReport(JobStatus("digits", JobPhase.RUNNING, target=Size(1, 3), epoch=math.nan), 0.0)
    assert promised(job(status={}), falsehood, JobMemory(), 0.0) == Size(0, 0)


@given(
    capacity=st.integers(0, 12),
    growths=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.booleans()), max_size=12),
)
def test_whatever_two_jobs_are_promised_there_is(capacity: int, growths: list[tuple[str, int, bool]]) -> None:
    """Each look sees none, or all, of the pods that were promised before."""
    memories = {name: JobMemory(desired=Size(0, 0)) for name in "ab"}
    has = dict.fromkeys("ab", 0)
    jobs = {name: replace(job(status={"startTime": "x"}), uid=name) for name in "ab"}
    node = NodeFacts("n", (("cpu", CPU * capacity), ("memory", 1 << 40), ("pods", 100)), (), False, "")
    for name, size, pods_come in growths:
        found = ClusterCapacity(
            [node], [PodFacts("n", WORKER, each, "Running", False) for each in has for _ in range(has[each])]
        )
        for each in "ab":
            pods = [pod(f"worker-{number}", owner=each) for number in range(has[each])]
            reserve(found, jobs[each], [replace(LEADER, owner=each), *pods], None, memories[each], 0.0)
        now = promised(jobs[name], None, memories[name], 0.0).workers
        if size > now and found.take([PodNeed(WORKER)] * (size - now)):
            memories[name].requested = Size(0, size), 0.0
        if pods_come:
            has[name] = promised(jobs[name], None, memories[name], 0.0).workers
    assert sum(promised(jobs[name], None, memories[name], 0.0).workers for name in "ab") <= capacity


# ---- on a cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(nodes=(Node("a", cpu="4200m"),), waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def pretended(cluster: Cluster) -> Pretended:
    return Pretended(cluster)


@pytest.fixture
def agent(cluster: Cluster, pretended: Pretended) -> Iterator[Agent]:
    with agent_of(cluster, connect=pretended) as found:
        yield found


def test_two_jobs_that_grow_at_once_never_take_more_than_there_is(
    cluster: Cluster, agent: Agent, pretended: Pretended
) -> None:
    """There is room for eight tasks of half a core, and two coordinators; four are there, and six more are wanted."""
    for name in ("one", "two"):
        submit(cluster, spec(workers=(1, 4), servers=(1, 1)), name)
    agent.decide(one=Allocation(1, 1), two=Allocation(1, 1))
    for name in ("one", "two"):
        wait_size(cluster, 1, 1, name)
    # Its coordinator takes it up, and is slow to name the new tasks: no pod is to be seen.
    pretended.says = lambda status: replace(status, wanted=()) if status.job == "one" else status
    agent.decide(one=Allocation(4, 1))
    cluster.wait(lambda: any(brain.target == Size(1, 4) for brain in pretended.brains.values()), "it was asked to grow")
    agent.decide(one=Allocation(4, 1), two=Allocation(3, 1))
    cluster.wait(lambda: "waits for room to grow" in status_of(cluster, "two").get("message", ""), "why it waits")
    pretended.says = lambda status: status
    wait_size(cluster, 4, 1, "one")
    assert len(pods_of(cluster, "two")) == 3
    agent.decide(one=Allocation(4, 1), two=Allocation(2, 1))
    wait_size(cluster, 2, 1, "two")
    assert all(pod["spec"].get("nodeName") for pod in cluster.all("pods")), "no pod waits for a node"
