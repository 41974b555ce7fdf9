"""The controller of TrainingJobs on the test API server: what a cluster does to it, write by write; what people see.

Containers and coordinators pretend; the API, its watches and its refusals are real HTTP.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from apiserver.asked import Asked, Fault
from apiserver.cluster import Cluster, Node, Waits, running_cluster
from apiserver.controllers.pretending import Fate
from pretended_coordinators import Pretended
from training_cluster import Agent, agent_of, install, pods_of, status_of, submit, wait_phase, wait_size, wait_told
from training_objects import CRDS, TABLE, crd, spec, template

from cluster_agent.kubernetes.training.credentials import token_of
from policy_net.domain import Allocation

Json = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def pretended(cluster: Cluster) -> Pretended:
    return Pretended(cluster)


@pytest.fixture
def agent(cluster: Cluster, pretended: Pretended) -> Iterator[Agent]:
    with agent_of(cluster, connect=pretended) as found:
        yield found


def begin(cluster: Cluster, agent: Agent, workers: int = 2, servers: int = 1) -> None:
    submit(cluster, spec())
    agent.decide(digits=Allocation(workers, servers))
    agent.wait_second_try(workers, servers)


def once(cluster: Cluster, when: Callable[[Asked], bool], fault: Fault, times: int = 1) -> list[Asked]:
    """Let some requests go wrong; those."""
    struck: list[Asked] = []

    def faults(asked: Asked) -> Fault | None:
        if len(struck) < times and when(asked):
            struck.append(asked)
            return fault
        return None

    cluster.server.faults = faults
    return struck


def uid_of(cluster: Cluster, name: str) -> str:
    found = cluster.find(TABLE, name)
    assert found is not None
    return str(found["metadata"]["uid"])


def makes_pod(asked: Asked) -> bool:
    return (asked.verb, asked.resource, asked.dry_run) == ("create", "pods", False)


def test_a_job_is_started_resized_and_suspended(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    assert sorted(pods_of(cluster)) == ["coordinator", "ps-0", "worker-0", "worker-1"]
    agent.decide(digits=Allocation(4, 2))
    wait_size(cluster, 4, 2)
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
    wait_phase(cluster, "Suspended")
    cluster.wait(lambda: not pods_of(cluster), "no pod is left")
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": False}})
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    for reason in ("Starting", "Running", "Suspended"):
        wait_told(cluster, reason)


def test_what_was_decided_stays_within_bounds_that_were_changed(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent, workers=4)

    def narrow(found: Json) -> Json:
        return {**found, "spec": {**found["spec"], "worker": {**found["spec"]["worker"], "max": 3}}}

    cluster.change(TABLE, "digits", narrow)
    wait_size(cluster, 3, 1)


def test_a_job_that_no_node_is_large_enough_for_says_so(cluster: Cluster, agent: Agent) -> None:
    large = template()
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4000"
    submit(cluster, spec(worker={"min": 1, "max": 2, "template": large}))
    words = "waits for resources: no node is as large as a worker of it, which takes 4000 cores"
    cluster.wait(lambda: words in status_of(cluster).get("message", ""), "why it waits")
    conditions = {each["type"]: each for each in status_of(cluster)["conditions"]}
    assert (conditions["Running"]["status"], conditions["Running"]["reason"]) == ("False", "Queued")
    assert words in conditions["Running"]["message"]
    wait_told(cluster, "TooLarge")
    submit(cluster, spec(), "small")
    cluster.wait(lambda: status_of(cluster, "small").get("message") == "waits for resources", "one that only waits")


@pytest.mark.parametrize("struck", [0, 1, 2, 3])
@pytest.mark.parametrize("fault", [Fault(code=500), Fault(cut=True)], ids=["before", "after"])
def test_each_pod_of_a_gang_is_made_once_though_an_answer_is_lost(
    cluster: Cluster, agent: Agent, struck: int, fault: Fault
) -> None:
    numbers = itertools.count()
    lost = once(cluster, lambda asked: makes_pod(asked) and next(numbers) == struck, fault)
    begin(cluster, agent)
    assert len(lost) == 1
    assert sorted(pods_of(cluster)) == ["coordinator", "ps-0", "worker-0", "worker-1"]


@pytest.mark.parametrize("resource", ["services", "secrets", TABLE])
@pytest.mark.parametrize("fault", [Fault(code=500), Fault(cut=True)], ids=["before", "after"])
def test_a_lost_answer_to_any_other_write(cluster: Cluster, agent: Agent, resource: str, fault: Fault) -> None:
    lost = once(cluster, lambda asked: asked.writes and asked.resource == resource, fault)
    begin(cluster, agent)
    assert len(lost) == 1


def test_a_quota_that_refuses_half_a_gang_gets_the_rest_back(cluster: Cluster, agent: Agent) -> None:
    exceeded = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "exceeded quota: pods=2"}
    made = itertools.count()
    once(cluster, lambda asked: makes_pod(asked) and next(made) >= 2, Fault(code=403, status=exceeded), times=1000)
    submit(cluster, spec())
    agent.decide(digits=Allocation(2, 1))
    cluster.wait(lambda: "exceeded quota" in status_of(cluster).get("message", ""), "the quota's words")
    wait_told(cluster, "PodRefused")
    cluster.wait(lambda: not pods_of(cluster), "what there was of the gang is gone")
    wait_phase(cluster, "Queued")
    cluster.server.faults = lambda asked: None
    agent.wait_second_try(2, 1)


def test_a_pod_that_another_has_made_is_not_taken(cluster: Cluster, agent: Agent) -> None:
    foreign = {"metadata": {"name": "digits-ps-0", "namespace": "team"}, "spec": template()["spec"]}
    cluster.make("pods", {**foreign, "metadata": {**foreign["metadata"], "labels": {}}})
    submit(cluster, spec())
    agent.decide(digits=Allocation(1, 1))
    cluster.wait(lambda: "it is not this job's" in status_of(cluster).get("message", ""), "it says so")
    cluster.delete("pods", "digits-ps-0", gracePeriodSeconds=0)
    agent.wait_second_try(1, 1)


def test_an_image_that_never_pulls_is_told_and_others_are_unaffected(cluster: Cluster, agent: Agent) -> None:
    cluster.pretending.fate = lambda pod: Fate(pulls=not pod["metadata"]["name"].startswith("bad-worker"))
    submit(cluster, spec(), "bad")
    submit(cluster, spec(), "good")
    agent.decide(bad=Allocation(1, 1), good=Allocation(1, 1))
    wait_size(cluster, 1, 1, "good")
    cluster.wait(lambda: "ImagePullBackOff" in status_of(cluster, "bad").get("message", ""), "why it does not start")
    cluster.pretending.fate = lambda pod: Fate()
    wait_size(cluster, 1, 1, "bad")


def test_jobs_that_cannot_be_used_say_so_and_others_are_unaffected(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, {**spec(), "worker": {"min": 3, "max": 2, "template": template()}}, "a-bad")
    odd = template()
    odd["spec"]["terminationGracePeriodSeconds"] = {"not": "a number"}
    submit(cluster, spec(worker={"min": 1, "max": 2, "template": odd}), "b-odd")
    submit(cluster, spec(), "c-good")
    agent.decide(b_odd=Allocation(1, 1), c_good=Allocation(1, 1))
    wait_size(cluster, 1, 1, "c-good")
    found = wait_phase(cluster, "Invalid", "a-bad")
    accepted = next(each for each in found["conditions"] if each["type"] == "Accepted")
    assert accepted["status"] == "False"
    assert "below spec.worker.min" in accepted["message"]
    cluster.wait(lambda: "is no pod's" in status_of(cluster, "b-odd").get("message", ""), "what is wrong with it")
    wait_told(cluster, "Invalid", name="a-bad")


def test_a_node_that_vanishes_takes_a_worker_and_another_takes_its_place(
    cluster: Cluster, agent: Agent, pretended: Pretended
) -> None:
    begin(cluster, agent, workers=4)
    pods = pods_of(cluster)
    home = pods["coordinator"]["spec"]["nodeName"]
    gone = next((pod["spec"]["nodeName"] for pod in pods.values() if pod["spec"]["nodeName"] != home), "")
    assert gone, "all pods are on one node"
    lost = sorted(task for task, pod in pods.items() if pod["spec"]["nodeName"] == gone)
    cluster.delete("nodes", gone, namespace="")
    cluster.wait(lambda: set(lost) <= set(pretended.ended), "the coordinator hears of each")
    cluster.add(Node("c"))
    wait_size(cluster, 4, 1)


def test_a_job_that_is_deleted_and_made_anew_is_another_one(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    before = {pod["metadata"]["uid"] for pod in pods_of(cluster).values()}
    cluster.delete(TABLE, "digits")
    made = submit(cluster, spec())
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    pods = pods_of(cluster).values()
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {made["metadata"]["uid"]}


def test_a_job_that_is_deleted_while_its_gang_is_made_leaves_nothing(cluster: Cluster, agent: Agent) -> None:
    def faults(asked: Asked) -> Fault | None:
        if makes_pod(asked) and cluster.server.store.objects[TABLE]:
            cluster.server.store.delete(TABLE, "team", "digits", {})
        return None

    cluster.server.faults = faults
    submit(cluster, spec())
    agent.decide(digits=Allocation(2, 1))
    cluster.wait(lambda: cluster.find(TABLE, "digits") is None, "it is gone")
    for table in ("pods", "services", "secrets"):
        cluster.wait(lambda table=table: not cluster.all(table, "team"), f"no {table} are left")  # type: ignore[misc]


def test_a_crd_that_comes_later(pretended: Pretended, cluster: Cluster) -> None:
    del pretended
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as bare, agent_of(bare, connect=Pretended(bare)) as agent:
        bare.wait(lambda: any(asked.resource == TABLE for asked in bare.server.asked) or bare.server.asked, "a try")
        bare.make(CRDS, crd())
        submit(bare, spec(checkpoints={"claimName": "shared"}))
        bare.make("persistentvolumeclaims", {"metadata": {"name": "shared", "namespace": "team"}, "spec": {}})
        agent.decide(digits=Allocation(1, 1))
        wait_size(bare, 1, 1)


@pytest.mark.parametrize(
    "falsehood",
    [{"epoch": float("nan")}, {"samples": -5}, {"samples": 10**30}, {"samples_per_second": float("inf")}],
    ids=str,
)
def test_a_coordinator_that_lies_is_not_believed_and_told(
    cluster: Cluster, agent: Agent, pretended: Pretended, falsehood: Json
) -> None:
    submit(cluster, spec(), "honest")
    begin(cluster, agent)
    agent.decide(honest=Allocation(1, 1))
    wait_size(cluster, 1, 1, "honest")
    pretended.says = lambda status: replace(status, **falsehood)
    wait_told(cluster, "NotBelieved")
    assert status_of(cluster)["progress"]["samples"] == 100
    for job in agent.observe():
        assert 0 < job.samples_per_epoch < 1e16
        assert job.remaining_epochs > 0
    assert wait_phase(cluster, "Running", "honest")


def test_a_coordinator_with_another_token_is_told_of(cluster: Cluster, agent: Agent, pretended: Pretended) -> None:
    pretended.token = "another"  # noqa: S105 — of no job
    submit(cluster, spec())
    agent.decide(digits=Allocation(1, 1))
    cluster.wait(lambda: "job's token" in status_of(cluster).get("message", ""), "why it is not heard of")


def test_a_job_keeps_the_key_that_it_began_with_when_the_agents_is_replaced(
    cluster: Cluster, pretended: Pretended
) -> None:
    old, new = b"o" * 32, b"n" * 32
    with agent_of(cluster, connect=pretended, key=old) as agent:
        begin(cluster, agent)
    pretended.token_of = lambda name: token_of(old if name == "digits" else new, uid_of(cluster, name))
    with agent_of(cluster, connect=pretended, key=new, earlier=(b"x" * 32, old), lease_epoch=8) as agent:
        submit(cluster, spec(), "later")
        agent.decide(digits=Allocation(3, 1), later=Allocation(1, 1))
        wait_size(cluster, 3, 1)
        wait_size(cluster, 1, 1, "later")
    with (
        structlog.testing.capture_logs() as lines,
        agent_of(cluster, connect=pretended, key=new, lease_epoch=9) as agent,
    ):
        cluster.wait(lambda: "job's token" in status_of(cluster).get("message", ""), "why it is not heard of")
        wait_size(cluster, 1, 1, "later")
    (line,) = [line for line in lines if line["event"] == "training-key-missing"]
    assert line["job"] == "team/digits"
    assert "earlier_key_files" in line["advice"]


def test_an_agent_that_does_not_act_writes_nothing_and_follows_what_the_other_decided(
    cluster: Cluster, agent: Agent, pretended: Pretended
) -> None:
    with agent_of(cluster, connect=pretended, acts=False, lease_epoch=8) as standby:
        begin(cluster, agent)
        assert [job.job_id for job in standby.observe()] == ["team/trainingjob/digits"]
        agent.acts = False
        standby.acts = True
        standby.decide(digits=Allocation(3, 1))
        wait_size(cluster, 3, 1)
        standby.acts = False
        agent.acts, agent.lease_epoch = True, 9
        cluster.server.asked.clear()
        cluster.wait(lambda: agent.observe()[0].current == Allocation(3, 1), "the first one sees it")
        agent.decide(digits=Allocation(2, 2))
        wait_size(cluster, 2, 2)
        assert status_of(cluster)["allocation"]["leaseEpoch"] == 9


def test_nothing_is_written_where_nothing_changes(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    cluster.server.settle()
    cluster.server.asked.clear()
    cluster.make(TABLE, {"metadata": {"name": "other", "namespace": "team"}, "spec": spec()})
    wait_phase(cluster, "Queued", "other")
    assert agent.jobs.is_known
    writes = [asked for asked in cluster.server.asked if asked.writes and asked.name == "digits"]
    assert len(writes) <= 1, writes
