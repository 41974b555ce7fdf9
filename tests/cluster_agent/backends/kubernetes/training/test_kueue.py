"""TrainingJobs with `spec.kueue` on the test API server: a stand-in for Kueue admits, grows, preempts and evicts them.

After each test its book is looked at: no pod was ever made beyond what was admitted, and no Workload was changed in a
way that Kueue's webhooks refuse.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.asked import Asked, Fault, webhook_down
from apiserver.cluster import Cluster, Node, Waits, running_cluster
from apiserver.controllers.kueue import FLAVORS, WORKLOADS, KueueStandIn, kueue_crds
from apiserver.controllers.requests import ONE
from apiserver.controllers.stepping import is_true
from pretended_coordinators import Pretended
from training_cluster import (
    Agent,
    agent_of,
    events_of,
    install,
    pods_of,
    status_of,
    submit,
    wait_phase,
    wait_size,
    wait_told,
)
from training_objects import CRDS, TABLE, spec, template

from cluster_agent.backends.kubernetes.training import kueue as kueue_module
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.errors import Invalid
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
QUEUE = {"kueue": {"queueName": "research"}}
GROUP = "workloads.kueue.x-k8s.io"


def install_kueue(cluster: Cluster, cpu: int = 8) -> KueueStandIn:
    """Kueue with one queue."""
    for each in kueue_crds():
        cluster.make(CRDS, each)
    stand_in = KueueStandIn(cluster.server.store, {"research": cpu})
    cluster.server.call(lambda: cluster.server.attach(stand_in))
    tolerated = {"key": "pool", "operator": "Equal", "value": "research", "effect": "NoSchedule"}
    flavor = {"nodeLabels": {"pool": "research"}, "tolerations": [tolerated]}
    cluster.make(FLAVORS, {"metadata": {"name": "default"}, "spec": flavor})
    return stand_in


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(kueue_module, "AGAIN_SECONDS", 0.2)
    taint = {"taints": [{"key": "pool", "value": "research", "effect": "NoSchedule"}]}
    nodes = (Node("outside"), Node("inside-a", labels={"pool": "research"}, more=taint))
    with running_cluster(nodes, waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def stand_in(cluster: Cluster) -> Iterator[KueueStandIn]:
    found = install_kueue(cluster)
    yield found
    assert cluster.server.call(lambda: list(found.broken)) == []


@pytest.fixture
def pretended(cluster: Cluster) -> Pretended:
    return Pretended(cluster)


@pytest.fixture
def agent(cluster: Cluster, stand_in: KueueStandIn, pretended: Pretended) -> Iterator[Agent]:
    del stand_in  # its book is closed after the agent's end
    with agent_of(cluster, connect=pretended) as found:
        yield found


def begin(cluster: Cluster, agent: Agent, workers: int = 2, servers: int = 1, name: str = "digits") -> None:
    submit(cluster, spec(**QUEUE), name)
    agent.decide(**{name: Allocation(workers, servers)})
    wait_size(cluster, workers, servers, name)


def live(cluster: Cluster, job: str = "digits") -> list[Json]:
    """Workloads of a job that are not finished, the first one first."""
    mine = [each for each in cluster.all(WORKLOADS) if each["metadata"]["labels"]["fedl2.io/training-job"] == job]
    return [each for each in mine if not is_true(each, "Finished")]


def counts(workload: Json) -> dict[str, int]:
    return {each["name"]: each["count"] for each in workload["spec"]["podSets"]}


def wait_counts(cluster: Cluster, workers: int, servers: int, job: str = "digits") -> Json:
    """Wait until one Workload of a job is left, admitted for so many."""
    asked = {"coordinator": 1, "ps": servers, "worker": workers}

    def holds() -> Json | None:
        found = live(cluster, job)
        fits = len(found) == 1 and counts(found[0]) == asked and is_true(found[0], "Admitted")
        return found[0] if fits else None

    found: Json = cluster.wait(holds, f"one Workload for {asked}; there are {live(cluster, job)}")
    return found


def set_quota(cluster: Cluster, stand_in: KueueStandIn, cpu: float) -> None:
    def change() -> None:
        stand_in.quotas["research"] = int(cpu * ONE)
        cluster.server.wake()

    cluster.server.call(change)


def admitted(cluster: Cluster, job: str = "digits") -> tuple[str, str]:
    """Status and reason of a job's condition."""
    found = next((each for each in status_of(cluster, job).get("conditions") or () if each["type"] == "Admitted"), {})
    return found.get("status", ""), found.get("reason", "")


def wait_admitted(cluster: Cluster, status: str, reason: str, job: str = "digits") -> None:
    cluster.wait(lambda: admitted(cluster, job) == (status, reason), f"{status} {reason}, not {admitted(cluster, job)}")


def struck(cluster: Cluster, when: Callable[[Asked], bool], fault: Fault, times: int = 1) -> list[Asked]:
    found: list[Asked] = []

    def faults(asked: Asked) -> Fault | None:
        if len(found) < times and when(asked):
            found.append(asked)
            return fault
        return None

    cluster.server.faults = faults
    return found


def of_workloads(*verbs: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.verb in verbs and asked.resource == GROUP


def running(cluster: Cluster) -> int:
    """How many pods' processes run; in the server's thread."""
    return sum(each["status"].get("phase") == "Running" for each in cluster.server.store.all("pods", "team"))


# Its life.


def test_a_job_begins_once_it_is_admitted_where_its_quota_is(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    set_quota(cluster, stand_in, 1)
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(2, 1))
    wait_admitted(cluster, "False", "WaitsForQuota")
    cluster.wait(lambda: "insufficient unused quota" in status_of(cluster).get("message", ""), "Kueue's words")
    assert status_of(cluster)["phase"] == "Queued"
    assert pods_of(cluster) == {}
    (asked,) = live(cluster)
    assert counts(asked) == {"coordinator": 1, "ps": 1, "worker": 2}
    assert asked["spec"]["queueName"] == "research"
    set_quota(cluster, stand_in, 8)
    wait_size(cluster, 2, 1)
    wait_admitted(cluster, "True", "Admitted")
    pods = pods_of(cluster)
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"inside-a"}
    assert all(pod["spec"]["nodeSelector"] == {"pool": "research"} for pod in pods.values())
    cluster.wait(lambda: is_true(wait_counts(cluster, 2, 1), "PodsReady"), "Kueue hears that its pods run")
    cluster.wait(lambda: {"WaitsForQuota", "Admitted"} <= events_of(cluster).keys(), "events")


def test_it_grows_by_a_slice_that_replaces_the_one_before(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    set_quota(cluster, stand_in, 2)
    begin(cluster, agent)
    (first,) = live(cluster)
    agent.decide(digits=Allocation(4, 2))
    wait_admitted(cluster, "True", "WaitsForMoreQuota")
    assert counts(live(cluster)[1]) == {"coordinator": 1, "ps": 2, "worker": 4}
    assert sorted(pods_of(cluster)) == ["coordinator", "ps-0", "worker-0", "worker-1"]
    set_quota(cluster, stand_in, 8)
    wait_size(cluster, 4, 2)
    found = wait_counts(cluster, 4, 2)
    annotations = found["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/workload-slice-replacement-for"] == f"team/{first['metadata']['name']}"
    assert annotations["kueue.x-k8s.io/elastic-job"] == "true"
    cluster.wait(lambda: cluster.find(WORKLOADS, first["metadata"]["name"]) is None, "the replaced one is tidied up")
    wait_admitted(cluster, "True", "Admitted")


def test_counts_are_lowered_after_the_pods_are_gone(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent, 4, 2)
    wait_counts(cluster, 4, 2)
    before = wait_counts(cluster, 4, 2)["metadata"]["uid"]
    lowered: list[int] = []

    def faults(asked: Asked) -> Fault | None:
        if asked.verb == "patch" and asked.resource == GROUP and not asked.part:
            lowered.append(running(cluster))
        return None

    cluster.server.faults = faults
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    assert wait_counts(cluster, 1, 1)["metadata"]["uid"] == before
    assert lowered
    assert lowered[-1] == 3


def test_a_job_that_waits_long_asks_for_its_least_size(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kueue_module, "PATIENT_SECONDS", 0.5)
    set_quota(cluster, stand_in, 1.5)
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(4, 2))
    wait_size(cluster, 1, 1)
    wait_admitted(cluster, "True", "WaitsForMoreQuota")


@pytest.mark.parametrize("reason", ["Preempted", "Deactivated"])
def test_an_evicted_job_gives_back_its_pods_and_then_its_quota(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn, reason: str
) -> None:
    begin(cluster, agent)
    name = wait_counts(cluster, 2, 1)["metadata"]["name"]

    def faults(asked: Asked) -> Fault | None:
        if asked.verb == "patch" and asked.part == "status" and asked.resource == GROUP:
            held.append(running(cluster))
        return None

    held: list[int] = []
    cluster.server.faults = faults
    set_quota(cluster, stand_in, 0)
    if reason == "Preempted":
        cluster.server.call(lambda: stand_in.evict(("team", name), reason, "Preempted to accommodate a workload"))
    else:
        cluster.change(WORKLOADS, name, lambda found: {**found, "spec": {**found["spec"], "active": False}})
    wait_told(cluster, "Evicted")
    cluster.wait(lambda: not pods_of(cluster), "its pods are gone")
    cluster.wait(lambda: not is_true(cluster.find(WORKLOADS, name) or {}, "QuotaReserved"), "its quota is given back")
    assert held[-1] == 0
    wait_phase(cluster, "Queued")
    found = cluster.find(WORKLOADS, name) or {}
    requeued = next(each for each in found["status"]["conditions"] if each["type"] == "Requeued")
    assert requeued["status"] == ("True" if reason == "Preempted" else "False")
    assert "admission" not in found["status"]
    set_quota(cluster, stand_in, 8)
    if reason == "Deactivated":

        def activated(found: Json) -> Json:
            return {**found, "spec": {**found["spec"], "active": True}}

        cluster.change(WORKLOADS, name, activated)
        requeue(cluster, name)
    wait_size(cluster, 2, 1)


def requeue(cluster: Cluster, name: str) -> None:
    """As Kueue does once a Workload was activated again."""

    def change(found: Json) -> Json:
        conditions = [each for each in found["status"]["conditions"] if each["type"] != "Requeued"]
        return {**found, "status": {**found["status"], "conditions": conditions}}

    cluster.change(WORKLOADS, name, change, part="status")


def test_one_of_higher_priority_takes_its_place_and_gives_it_back(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    set_quota(cluster, stand_in, 2)
    begin(cluster, agent)
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m"}}}]}}
    other = {"queueName": "research", "priority": 10, "podSets": [{"name": "main", "count": 1, "template": template}]}
    cluster.make(
        WORKLOADS,
        {"metadata": {"name": "other", "namespace": "team", "labels": {"fedl2.io/training-job": ""}}, "spec": other},
    )
    cluster.wait(lambda: is_true(cluster.find(WORKLOADS, "other") or {}, "Admitted"), "the other one has the quota")
    assert not pods_of(cluster)
    cluster.delete(WORKLOADS, "other")
    wait_size(cluster, 2, 1)


def test_admission_checks_are_waited_for_at_first_and_while_growing(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    stand_in.checks = False
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(1, 1))
    wait_admitted(cluster, "False", "WaitsForChecks")
    assert not pods_of(cluster)

    def passed(holds: bool) -> None:
        def change() -> None:
            stand_in.checks = holds
            cluster.server.wake()

        cluster.server.call(change)

    passed(True)
    wait_size(cluster, 1, 1)
    passed(False)
    agent.decide(digits=Allocation(3, 1))

    def reserved() -> bool:
        return any(is_true(each, "QuotaReserved") and counts(each)["worker"] == 3 for each in live(cluster))

    cluster.wait(reserved, "a slice with quota")
    wait_admitted(cluster, "True", "WaitsForMoreQuota")
    assert status_of(cluster)["phase"] == "Running"
    passed(True)
    wait_size(cluster, 3, 1)


def end(cluster: Cluster, task: str) -> None:
    """A task's process ends."""
    uid = pods_of(cluster)[task]["metadata"]["uid"]
    cluster.server.call(lambda: cluster.pretending.end(uid))


def test_suspended_by_its_user_or_over_it_holds_no_quota(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn, pretended: Pretended
) -> None:
    begin(cluster, agent)
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
    wait_phase(cluster, "Suspended")
    cluster.wait(lambda: not cluster.all(WORKLOADS), "no quota is asked for")
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": False}})
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    pretended.says = lambda status: replace(status, phase=JobPhase.FINISHED, wanted=(), tasks=())
    for task in ("worker-0", "ps-0"):
        end(cluster, task)
    cluster.wait_for_condition(TABLE, "digits", "Complete")
    cluster.wait(lambda: not live(cluster), "it is finished")
    conditions = cluster.all(WORKLOADS)[-1]["status"]["conditions"]
    finished = next(each for each in conditions if each["type"] == "Finished")
    assert finished["reason"] == "Succeeded"
    assert cluster.server.call(lambda: stand_in.used("research")) == 0


def test_a_job_that_is_deleted_takes_its_workload_along(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    cluster.delete(TABLE, "digits")
    cluster.wait(lambda: not cluster.all(WORKLOADS), "its Workload is gone")


# What goes wrong.


def test_without_kueue_a_job_says_so_others_run_and_it_begins_once_kueue_comes(
    cluster: Cluster, pretended: Pretended
) -> None:
    with agent_of(cluster, connect=pretended) as agent:
        submit(cluster, spec(), "plain")
        agent.decide(plain=Allocation(1, 1))
        wait_size(cluster, 1, 1, "plain")
        assert not any(asked.resource == GROUP for asked in cluster.server.asked), "nobody has to have rights to it"
        submit(cluster, spec(**QUEUE))
        agent.decide(digits=Allocation(1, 1))
        wait_admitted(cluster, "False", "KueueMissing")
        wait_told(cluster, "KueueMissing", "install Kueue")
        assert pods_of(cluster) == {}
        install_kueue(cluster)
        wait_size(cluster, 1, 1)
        assert status_of(cluster, "plain")["phase"] == "Running"


def test_a_right_that_is_missing_is_told_and_tried_again(cluster: Cluster, agent: Agent) -> None:
    forbidden = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "workloads is forbidden"}
    struck(cluster, of_workloads("create"), Fault(code=403, status=forbidden), times=1000)
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(1, 1))
    wait_admitted(cluster, "False", "KueueRefused")
    wait_told(cluster, "KueueRefused", "workloads is forbidden")
    cluster.server.faults = lambda asked: None
    wait_size(cluster, 1, 1)


@pytest.mark.parametrize(
    "fault",
    [Fault(code=500), Fault(cut=True), webhook_down("vworkload.kb.io"), Fault(code=409)],
    ids=["before", "after", "webhook", "conflict"],
)
@pytest.mark.parametrize("nth", [0, 1, 2])
def test_an_answer_that_is_lost_or_refused_leaves_nothing_behind(
    cluster: Cluster, agent: Agent, fault: Fault, nth: int
) -> None:
    numbers = itertools.count()
    when = of_workloads("create", "patch", "delete")
    lost = struck(cluster, lambda asked: when(asked) and next(numbers) == nth, fault)
    begin(cluster, agent, 1, 1)
    agent.decide(digits=Allocation(3, 2))
    wait_size(cluster, 3, 2)
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    wait_counts(cluster, 2, 1)
    assert len(lost) == 1


def test_a_workload_that_somebody_deletes_has_the_job_stop_and_wait_again(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    begin(cluster, agent)
    set_quota(cluster, stand_in, 0)
    cluster.delete(WORKLOADS, wait_counts(cluster, 2, 1)["metadata"]["name"])
    cluster.wait(lambda: not pods_of(cluster), "its pods are gone")
    wait_admitted(cluster, "False", "WaitsForQuota")
    set_quota(cluster, stand_in, 8)
    wait_size(cluster, 2, 1)
    wait_counts(cluster, 2, 1)


def test_an_agent_that_was_killed_after_a_slice_was_made_is_followed_by_one_that_goes_on(
    cluster: Cluster, stand_in: KueueStandIn, pretended: Pretended
) -> None:
    with agent_of(cluster, connect=pretended) as first:
        begin(cluster, first)
        set_quota(cluster, stand_in, 2)
        first.decide(digits=Allocation(4, 2))
        cluster.wait(lambda: len(live(cluster)) == 2, "a slice is asked for")
    with agent_of(cluster, connect=pretended, lease_epoch=8) as second:
        set_quota(cluster, stand_in, 8)
        second.decide(digits=Allocation(4, 2))
        wait_size(cluster, 4, 2)
        wait_counts(cluster, 4, 2)


@pytest.mark.parametrize("nth", range(5))
@pytest.mark.parametrize("cut", [False, True], ids=["before", "after"])
def test_whoever_follows_an_agent_that_was_killed_at_a_write_goes_on(
    cluster: Cluster, stand_in: KueueStandIn, pretended: Pretended, nth: int, cut: bool
) -> None:
    """Writes: a Workload, that its pods run, a slice, that the slice's pods run, the end of the first one."""
    del stand_in
    numbers, when = itertools.count(), of_workloads("create", "patch", "delete")
    with agent_of(cluster, connect=pretended) as first:

        def kills(asked: Asked) -> bool:
            struck_now = first.acts and when(asked) and next(numbers) == nth
            first.acts = first.acts and not struck_now
            return struck_now

        died = struck(cluster, kills, Fault(cut=True) if cut else Fault(code=500))
        submit(cluster, spec(**QUEUE))
        first.decide(digits=Allocation(1, 1))
        cluster.wait(lambda: died or status_of(cluster).get("workers") == 1, "it trains, or its agent is dead")
        first.decide(digits=Allocation(3, 2))
        cluster.wait(lambda: died, "its agent is dead")
    with agent_of(cluster, connect=pretended, lease_epoch=8) as second:
        second.decide(digits=Allocation(3, 2))
        wait_size(cluster, 3, 2)
        wait_counts(cluster, 3, 2)
        assert len(live(cluster)) == 1


def rights(*files: str) -> list[Json]:
    """Rules of the roles of overlays."""
    folder = Path(__file__).parents[5] / "deploy" / "kustomize"
    texts = [(folder / name).read_text(encoding="utf-8") for name in files]
    return [rule for text in texts for role in yaml.safe_load_all(text) for rule in role["rules"]]


TRAINING = ("base/advice-role.yaml", "overlays/auto/auto-role.yaml", "overlays/training/training-role.yaml")


def test_the_rights_of_the_overlay_are_enough_and_without_them_it_says_what_to_do(
    cluster: Cluster, stand_in: KueueStandIn, pretended: Pretended
) -> None:
    kubeconfig = cluster.grant("agent", rights(*TRAINING))
    with agent_of(cluster, connect=pretended, kubeconfig=kubeconfig) as agent:
        submit(cluster, spec(), "plain")
        submit(cluster, spec(**QUEUE))
        agent.decide(plain=Allocation(1, 1), digits=Allocation(1, 1))
        wait_size(cluster, 1, 1, "plain")
        wait_admitted(cluster, "False", "KueueMissing")
        wait_told(cluster, "KueueMissing", "give the agent rights")
        cluster.grant("agent", rights(*TRAINING, "overlays/kueue/kueue-role.yaml"))
        wait_size(cluster, 1, 1)
        agent.decide(digits=Allocation(3, 2))
        wait_size(cluster, 3, 2)
        agent.decide(digits=Allocation(1, 1))
        wait_counts(cluster, 1, 1)
        name = wait_counts(cluster, 1, 1)["metadata"]["name"]
        cluster.server.call(lambda: stand_in.evict(("team", name), "Preempted", "for another"))
        wait_told(cluster, "Evicted")
        wait_size(cluster, 1, 1)
        cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
        cluster.wait(lambda: not cluster.all(WORKLOADS), "no quota is asked for")


def test_a_kueue_that_does_not_know_slices_still_has_one_workload_in_the_end(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    stand_in.knows_slices = False
    begin(cluster, agent, 1, 1)
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    wait_counts(cluster, 2, 1)


def test_a_flavor_that_cannot_be_read_is_told_and_no_pod_goes_elsewhere(cluster: Cluster, agent: Agent) -> None:
    struck(cluster, lambda asked: asked.resource == FLAVORS, Fault(code=500), times=1000)
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(1, 1))
    wait_told(cluster, "ApiTrouble")
    assert not pods_of(cluster)
    cluster.server.faults = lambda asked: None
    wait_size(cluster, 1, 1)


def test_a_template_that_is_no_pods_asks_for_nothing_and_says_so(cluster: Cluster, agent: Agent) -> None:
    odd = template()
    odd["spec"]["terminationGracePeriodSeconds"] = {"not": "a number"}
    submit(cluster, spec(worker={"min": 1, "max": 2, "template": odd}, **QUEUE))
    wait_phase(cluster, "Invalid")
    assert "spec.worker.template makes no pod: it is no pod's" in status_of(cluster)["message"]
    assert not agent.observe()
    assert not cluster.all(WORKLOADS)


def test_a_job_that_wants_nothing_any_more_leaves_the_queue(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    set_quota(cluster, stand_in, 0)
    submit(cluster, spec(**QUEUE))
    agent.decide(digits=Allocation(1, 1))
    cluster.wait(lambda: live(cluster), "it asks")
    agent.decide(digits=SUSPENDED)
    cluster.wait(lambda: not cluster.all(WORKLOADS), "it asks no more")


def test_the_queue_of_a_job_cannot_be_changed(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)

    def change(found: Json) -> Json:
        return {**found, "spec": {**found["spec"], "kueue": {"queueName": "other"}}}

    found = cluster.find(TABLE, "digits")
    assert found is not None
    api = ApiServer(open_client(Access(cluster.kubeconfig, "")), 10.0)
    with contextlib.closing(api), pytest.raises(Invalid, match="kueue cannot be changed"):
        api.replace(TRAINING_JOBS.path("team", "digits"), change(found))
