"""ElasticTargets that cannot be, or come to trouble: a condition, an Event and a metric say so; no other one notices.

An agent that only advises may write no Events: then it is a condition and a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.serving import Fault, webhook_down
from kube_agents import Agent, wait_for
from kube_cluster import JOBS, PODS, TARGETS, KubeCluster, kube_cluster

Json = dict[str, Any]


class Site:
    """A cluster where `good` is resized at every decision, and `bad` is about to come to trouble."""

    def __init__(self, cluster: KubeCluster, folder: Path, user: str) -> None:
        self.cluster, self.sizes = cluster, 2
        cluster.node("a", gpus=16)
        cluster.opt_in()
        cluster.job("good", 2, on="a")
        cluster.target("good", updateMode="Auto", max=4)
        self.agent = Agent(cluster, folder, user, slot_seconds=0.1, limits={"changes_per_hour": 3600})

    def decide(self, **sizes: int) -> None:
        """Also about the good one, which gets another size each time."""
        self.cluster.follow("good")
        self.sizes = 5 - self.sizes
        self.agent.decide(good=self.sizes, **sizes)

    def condition(self, kind: str, name: str = "bad") -> Json:
        found = self.cluster.status_of(name).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {})

    def reported(self, reason: str, kind: str = "ElasticTarget") -> float:
        return self.agent.counted("fedl2_agent_object_reasons_total", kind=kind, reason=reason)

    def wait_told(self, condition: tuple[str, str], words: str, reason: str, **sizes: int) -> None:
        """Decide until a condition, an Event and a metric say it."""
        kind, status = condition

        def stands() -> bool:
            self.decide(**sizes)
            found = self.condition(kind)
            return found.get("status") == status and found.get("reason") == reason and words in found["message"]

        wait_for(stands, lambda: self.condition(kind))
        assert self.reported(reason) >= 1
        if self.agent_user == "auto":
            wait_for(lambda: ("ElasticTarget", reason) in {each[:2] for each in self.cluster.events()})
        else:
            assert self.cluster.events() == []

    agent_user = "auto"

    def good_goes_on(self) -> bool:
        self.decide()
        return self.cluster.size("good") == self.sizes


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with kube_cluster() as cluster:
        made = Site(cluster, tmp_path, "auto")
        yield made
        cluster.server.faults = lambda asked: None
        wait_for(made.good_goes_on)
        assert made.condition("Resized", "good")["status"] == "True"
        made.agent.close()


REF = {"apiVersion": "batch/v1", "kind": "Job", "name": "bad"}
SPECS: dict[str, tuple[Json, str]] = {
    "max below min": ({"min": 3, "max": 2}, "spec.max is 2, below spec.min, which is 3"),
    "model type that is no word": ({"modelType": ""}, "spec.modelType is '': use a word"),
    "min that is none": ({"min": 0}, "spec.min is 0: use 1 to 64"),
    "no target": ({"targetRef": {**REF, "name": ""}}, "spec.targetRef.name is missing"),
    "a kind that is not looked after": ({"targetRef": {**REF, "kind": "CronJob"}}, "spec.targetRef is a CronJob"),
}


@pytest.mark.parametrize("what", SPECS)
def test_a_spec_that_cannot_be_used(site: Site, what: str) -> None:
    more, words = SPECS[what]
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", **{"updateMode": "Auto", "most": 4, **more})
    site.wait_told(("Ready", "False"), words, "NotUsable")
    assert site.cluster.size("bad") == 2
    before = site.reported("NotUsable")
    for _ in range(3):
        site.decide()
    assert site.reported("NotUsable") == before, "told once"


def test_pods_without_resources(site: Site) -> None:
    site.cluster.job("bad", 2, gpus=0, cpu="0")
    site.cluster.target("bad", updateMode="Auto")
    site.wait_told(("Ready", "False"), "neither CPU nor GPUs", "NotUsable")


def test_a_model_type_that_nobody_knows_is_resized_like_any(site: Site) -> None:
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto", modelType="never-heard-of")
    site.decide(bad=3)
    assert site.cluster.size("bad") == 3
    assert "never-heard-of" in site.agent.backend.job_types


def test_what_is_wrong_is_a_condition_and_a_metric_where_there_is_only_advice(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        site = Site(cluster, tmp_path, "agent")
        site.agent_user = "agent"
        cluster.job("bad", 2, on="a")
        cluster.target("bad", min=3, most=2)
        site.wait_told(("Ready", "False"), "below spec.min", "NotUsable")
        assert set(cluster.writes()) == {("patch", TARGETS, "status")}
        site.agent.close()


def test_a_job_that_is_over_is_no_trouble(site: Site) -> None:
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto")
    site.cluster.change(JOBS, "bad", "status", status={"conditions": [{"type": "Complete", "status": "True"}]})

    def says() -> bool:
        site.decide()
        return "is over" in str(site.condition("Ready").get("message"))

    wait_for(says)
    assert site.reported("NotUsable") == 0


def test_a_namespace_without_permission(site: Site) -> None:
    may = site.cluster.server.may
    site.cluster.server.may = lambda asked: (
        may(asked)
        and (asked.verb, asked.resource, asked.name)
        != (
            "patch",
            JOBS,
            "bad",
        )
    )
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto")
    site.wait_told(("Resized", "False"), "403 Forbidden", "ChangeFailed", bad=3)
    assert site.agent.counted("fedl2_agent_size_changes_total", outcome="failed") >= 1
    assert site.agent.counted("fedl2_agent_api_failures_total", error="forbidden") >= 1


def test_a_namespace_that_has_not_opted_in_is_counted_and_not_told(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a", gpus=16)
        cluster.job("bad", 2, on="a")
        cluster.target("bad", updateMode="Auto")
        agent = Agent(cluster, tmp_path, "auto", slot_seconds=0.1)
        for _ in range(3):
            agent.decide(bad=3)
        labels = {"kind": "ElasticTarget", "reason": "NotOptedIn"}
        assert agent.counted("fedl2_agent_object_reasons_total", **labels) == 1
        assert cluster.events() == []
        agent.close()


def test_a_webhook_that_is_down(site: Site) -> None:
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto")
    site.cluster.server.faults = lambda asked: (
        webhook_down() if (asked.verb, asked.resource, asked.name) == ("patch", JOBS, "bad") else None
    )
    site.wait_told(("Resized", "False"), "failed calling webhook", "ChangeFailed", bad=3)


def test_a_node_that_vanishes(site: Site) -> None:
    """Its pods are gone, and where there is no room for others it is said."""
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto", most=16)
    node = site.cluster.server.call(lambda: site.cluster.server.store.get("nodes", "", "a"))
    site.cluster.server.call(lambda: site.cluster.server.store.delete("nodes", "", "a", {}))
    site.cluster.node("b", gpus=4)

    def seen() -> bool:
        return [each.node_id for each in site.agent.backend.poll().state.nodes] == ["b"]

    wait_for(seen)
    site.cluster.follow("good", on="b")
    site.wait_told(("Limited", "True"), "leaves no more", "BoundsAndShares", bad=16)
    assert site.cluster.size("bad") <= 4
    site.cluster.node("c", gpus=16, memory=str(node["status"]["allocatable"]["memory"]))


def test_an_image_that_never_pulls_keeps_others_from_nothing(site: Site) -> None:
    """A Job's pods that wait for ever have been promised their room; the Job's own status says what its pods lack."""
    site.cluster.job("bad", 2)
    site.cluster.target("bad", updateMode="Auto")
    for _ in range(2):
        site.decide(bad=3)
    wait_for(lambda: "bad-0" in {name for _, name in site.agent.backend.watch.pods.entries()})
    assert not site.agent.backend.poll().members["team/bad"].is_whole
    assert site.agent.progress
    assert all(each.samples == 0.0 for each in site.agent.progress if each.job_id == "team/bad")


def test_a_job_that_is_deleted_and_made_again_under_its_name(site: Site) -> None:
    site.cluster.job("bad", 2, on="a")
    site.cluster.target("bad", updateMode="Auto")
    site.decide(bad=3)
    assert site.cluster.size("bad") == 3
    for each in ("bad-0", "bad-1"):
        site.cluster.remove_pod(each)
    site.cluster.server.call(lambda: site.cluster.server.store.delete(JOBS, "team", "bad", {}))
    site.wait_told(("Ready", "False"), "there is no Job bad", "NotUsable")
    made = site.cluster.job("bad", 1, on="a")

    def is_resized() -> bool:
        site.decide(bad=2)
        return site.cluster.size("bad") == 2

    wait_for(is_resized)
    found = site.cluster.server.call(lambda: site.cluster.server.store.get(JOBS, "team", "bad"))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert site.condition("Ready")["reason"] == "Set"
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in _pods(site, "bad")} == {made["metadata"]["uid"]}


def _pods(site: Site, name: str) -> list[Json]:
    found = site.cluster.server.call(lambda: list(site.cluster.server.store.all(PODS, "team")))
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-")]


def test_a_crd_that_is_not_installed_yet(tmp_path: Path) -> None:
    """There is no object yet that could have a condition or an Event: readiness and a metric say it."""
    with kube_cluster() as cluster:
        lacking = True
        cluster.server.faults = lambda asked: Fault(404) if lacking and asked.resource == TARGETS else None
        agent = Agent(cluster, tmp_path, "auto", slot_seconds=0.1)
        wait_for(lambda: "404" in agent.backend.not_ready)
        assert agent.counted("fedl2_agent_api_failures_total", error="not-found") >= 1
        lacking = False
        cluster.node("a")
        cluster.opt_in()
        cluster.job("late", 2, on="a")
        cluster.target("late", updateMode="Auto")
        agent.decide(late=3)
        assert cluster.size("late") == 3
        agent.close()
