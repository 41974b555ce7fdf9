"""TrainingJobs that cannot be, or come to trouble: a condition, an Event and a metric say so; no other job notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from apiserver.asked import Asked, Fault, webhook_down
from apiserver.cluster import Cluster, Node, Waits, running_cluster
from apiserver.controllers.pretending import Fate
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
from training_objects import CRDS, TABLE, crd, spec, template

from cluster_agent.backend_settings import TemplateRights
from cluster_agent.kubernetes.training.pod_rights import Rights
from policy_net.domain import Allocation

Json = dict[str, Any]
SIZE = Allocation(2, 1)


@dataclass
class Site:
    """A cluster where `good` trains, and another job, `bad`, is about to come to trouble."""

    cluster: Cluster
    agent: Agent
    pretended: Pretended

    def condition(self, kind: str, name: str = "bad") -> Json:
        found = status_of(self.cluster, name).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {})

    def wait_told(self, condition: tuple[str, str], words: str, reason: str) -> None:
        """Wait until a condition, an Event and a metric say it."""
        kind, status = condition

        def stands() -> bool:
            found = self.condition(kind)
            return found.get("status") == status and words in found["message"]

        self.cluster.wait(stands, f"{kind} {status} with {words!r}")
        wait_told(self.cluster, reason, name="bad")
        assert self.agent.counted(reason) >= 1

    def begin(self, name: str = "bad") -> None:
        submit(self.cluster, spec(), name)
        self.agent.decide(**{name: SIZE})
        wait_size(self.cluster, 2, 1, name)


@pytest.fixture
def site() -> Iterator[Site]:
    with running_cluster((Node("a"),), waits=Waits(0.1, 0.1, 0.2)) as cluster:
        install(cluster)
        pretended = Pretended(cluster)
        with agent_of(cluster, connect=pretended) as agent:
            made = Site(cluster, agent, pretended)
            made.begin("good")
            for name in ("b", "c"):
                cluster.add(Node(name))
            before = {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster, "good").items()}
            yield made
            wait_size(cluster, 2, 1, "good")
            assert {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster, "good").items()} == before
            assert not [
                reason for reason in events_of(cluster, "good") if reason not in ("Queued", "Starting", "Running")
            ]


def unrequested() -> Json:
    found = template()
    del found["spec"]["containers"][0]["resources"]
    return found


SPECS = {
    "max below min": (spec(worker={"min": 3, "max": 2, "template": template()}), "below spec.worker.min"),
    "model type that is no word": (spec(modelType=""), "spec.modelType is ''"),
    "template without resources": (
        spec(worker={"min": 1, "max": 2, "template": unrequested()}),
        "neither CPU nor GPUs",
    ),
}


@pytest.mark.parametrize("what", SPECS)
def test_a_spec_that_cannot_be_used(site: Site, what: str) -> None:
    found, words = SPECS[what]
    submit(site.cluster, found, "bad")
    site.wait_told(("Accepted", "False"), words, "Invalid")
    assert not pods_of(site.cluster, "bad")


def test_what_a_template_asks_for_beyond_an_ordinary_pod() -> None:
    """Said first, and refused once that is enforced; a listed one trains."""
    near_the_node = spec(worker={"min": 1, "max": 4, "template": template(hostNetwork=True)})
    with running_cluster((Node("a"), Node("b")), waits=Waits(0.1, 0.1, 0.2)) as cluster:
        install(cluster)
        pretended = Pretended(cluster)
        with agent_of(cluster, connect=pretended) as agent:
            site = Site(cluster, agent, pretended)
            submit(cluster, near_the_node, "bad")
            agent.decide(bad=SIZE)
            wait_size(cluster, 2, 1, "bad")
            found = site.condition("Permitted")
            assert (found["status"], found["reason"]) == ("False", "NotListed")
            assert "spec.worker.template.spec.hostNetwork" in found["message"]
            assert site.condition("Accepted")["status"] == "True"
        with agent_of(cluster, connect=pretended, rights=Rights({}, enforced=True)) as agent:
            site = Site(cluster, agent, pretended)
            submit(cluster, near_the_node, "worse")
            cluster.wait(lambda: site.condition("Accepted", "worse"), "a word on it")
            found = site.condition("Accepted", "worse")
            assert found["status"] == "False"
            assert "backend.training.rights" in found["message"]
            assert not pods_of(cluster, "worse")
        listed = Rights({"team": TemplateRights(host_access=("hostNetwork",))}, enforced=True)
        with agent_of(cluster, connect=pretended, rights=listed) as agent:
            site = Site(cluster, agent, pretended)
            agent.decide(worse=SIZE)
            wait_size(cluster, 2, 1, "worse")
            cluster.wait(lambda: site.condition("Permitted", "worse")["status"] == "True", "that it is listed")


def test_a_model_type_that_nobody_knows_is_trained_like_any(site: Site) -> None:
    submit(site.cluster, spec(modelType="never-heard-of"), "bad")
    site.agent.decide(bad=SIZE)
    wait_size(site.cluster, 2, 1, "bad")
    assert site.condition("Accepted")["status"] == "True"
    assert "never-heard-of" in site.agent.jobs.job_types


def refusing(site: Site, when: Callable[[Asked], bool], fault: Fault) -> None:
    site.cluster.server.faults = lambda asked: fault if when(asked) and asked.writes else None


def test_a_namespace_without_permission(site: Site) -> None:
    namespace = "locked"
    site.cluster.make("namespaces", {"metadata": {"name": namespace}, "status": {"phase": "Active"}})
    site.cluster.server.may = lambda asked: asked.namespace != namespace or asked.resource == TABLE or not asked.writes
    site.cluster.make(TABLE, {"metadata": {"name": "bad", "namespace": namespace}, "spec": spec()})

    def observed() -> bool:
        return f"{namespace}/trainingjob/bad" in {job.job_id for job in site.agent.observe()}

    site.cluster.wait(observed, "sight of it")
    site.agent.decide_all({f"{namespace}/trainingjob/bad": SIZE})

    def says() -> bool:
        found = (site.cluster.find(TABLE, "bad", namespace) or {}).get("status", {})
        conditions = {each["type"]: each for each in found.get("conditions", ())}
        return "403 Forbidden" in conditions.get("Running", {}).get("message", "")

    site.cluster.wait(says, "why it does not run")
    # No Event can be written there either: what there was to tell is counted all the same.
    site.cluster.wait(lambda: site.agent.counted("PodRefused") >= 1, "a metric")
    site.cluster.server.may = lambda asked: True


def test_a_quota_that_refuses_midway_through_a_gang(site: Site) -> None:
    there = len(site.cluster.all("pods", "team"))
    hard = {"pods": str(there + 2)}
    site.cluster.make("resourcequotas", {"metadata": {"name": "few", "namespace": "team"}, "spec": {"hard": hard}})
    submit(site.cluster, spec(), "bad")
    site.agent.decide(bad=SIZE)
    site.wait_told(("Running", "False"), "exceeded quota", "PodRefused")
    site.cluster.wait(lambda: not pods_of(site.cluster, "bad"), "nothing of the gang is left")


def cordon(site: Site, node: str) -> None:
    site.cluster.change("nodes", node, lambda found: {**found, "spec": {"unschedulable": True}}, namespace="")


def test_a_node_that_vanishes(site: Site) -> None:
    cordon(site, "a")
    site.begin()
    pods = pods_of(site.cluster, "bad")
    gone = ({"b", "c"} - {pods["coordinator"]["spec"]["nodeName"]}).pop()
    lost = [task for task, pod in pods.items() if pod["spec"]["nodeName"] == gone]
    assert lost, "all pods are on one node"
    for node in ("b", "c"):
        cordon(site, node)
    site.cluster.delete("nodes", gone, namespace="")
    site.cluster.wait(lambda: set(lost) <= set(site.pretended.ended), "its coordinator hears of it")
    wait_told(site.cluster, "TaskLost", name="bad")
    kind = "False" if any(task.startswith("ps") for task in lost) else "True"
    site.wait_told(("Running", kind), "Unschedulable", "PodWaits")
    assert site.agent.counted("TaskLost") >= 1
    site.cluster.add(Node("d"))
    wait_size(site.cluster, 2, 1, "bad")


LIES: dict[str, Json] = {
    "NaN": {"epoch": float("nan")},
    "more than all": {"epoch": 7.0, "total_epochs": 5.0},
    "backwards": {"samples": 7, "step": 0, "durable_step": 0, "total_epochs": 5.0},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_coordinator_that_lies(site: Site, lie: str) -> None:
    honest: Json = {"epoch": 2.0, "total_epochs": 5.0, "samples": 200, "step": 20, "durable_step": 20}
    lied: list[bool] = []

    def says(status: Any) -> Any:
        return replace(status, **(honest | LIES[lie] if lied else honest))

    site.begin()
    leader = pods_of(site.cluster, "bad")["coordinator"]["metadata"]["uid"]
    brain = site.pretended.brains[leader]
    site.pretended.says_of = lambda each, status: says(status) if each is brain else status
    site.agent.skip_pause()
    site.cluster.wait(lambda: (status_of(site.cluster, "bad").get("progress") or {}).get("samples") == 200, "the truth")
    lied.append(True)
    site.agent.skip_pause()
    site.wait_told(("Believed", "False"), "its coordinator counts", "NotBelieved")
    for job in site.agent.observe():
        assert job.remaining_epochs > 0
    lied.clear()
    site.agent.skip_pause()
    site.cluster.wait(lambda: site.condition("Believed")["status"] == "True", "it is believed again")


def test_an_image_that_never_pulls(site: Site) -> None:
    site.cluster.pretending.fate = lambda pod: Fate(pulls=not pod["metadata"]["name"].startswith("bad-worker"))
    submit(site.cluster, spec(), "bad")
    site.agent.decide(bad=SIZE)
    site.wait_told(("Running", "False"), "ImagePullBackOff", "PodWaits")
    site.cluster.server.settle()
    assert site.agent.counted("PodWaits") <= 2, "told of once for each pod"


def test_a_job_that_is_deleted_and_made_again_under_its_name(site: Site) -> None:
    site.begin()
    before = {pod["metadata"]["uid"] for pod in pods_of(site.cluster, "bad").values()}
    site.cluster.delete(TABLE, "bad")
    site.begin()
    assert not before & {pod["metadata"]["uid"] for pod in pods_of(site.cluster, "bad").values()}


def test_a_webhook_that_is_down(site: Site) -> None:
    refusing(site, lambda asked: (asked.verb, asked.resource) == ("create", "pods"), webhook_down())
    submit(site.cluster, spec(), "bad")
    site.agent.decide(bad=SIZE)
    site.wait_told(("Running", "False"), "failed calling webhook", "ApiTrouble")
    site.cluster.server.faults = lambda asked: None


def test_a_crd_that_is_not_installed_yet() -> None:
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as cluster:
        pretended = Pretended(cluster)
        with agent_of(cluster, connect=pretended) as agent:
            # There is no object yet that could have a condition or an Event: readiness and a metric say it.
            cluster.wait(lambda: "404" in agent.jobs.trouble, "what /readyz says")
            assert not agent.jobs.is_known
            assert agent.failures("not-found") >= 1
            cluster.make(CRDS, crd())
            for name in ("shared", "journal"):
                cluster.make("persistentvolumeclaims", {"metadata": {"name": name, "namespace": "team"}, "spec": {}})
            submit(cluster, spec())
            agent.decide(digits=SIZE)
            wait_phase(cluster, "Running")
