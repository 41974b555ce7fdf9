"""Sizes that are set while watches fail in every way that was seen: no room is given twice, and all is as decided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver.asked import FLOW_CONTROL, NOT_SERVED_YET, re_initializing
from apiserver.serving import Asked, Fault
from kube_agents import Agent, wait_for
from kube_cluster import JOBS, PODS, TARGETS, KubeCluster, kube_cluster

from cluster_agent.kubernetes import list_watch

GPUS = 4


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that are minutes, as seconds."""
    monkeypatch.setattr(list_watch, "_FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(list_watch, "_LONGEST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(list_watch, "SILENCE_SECONDS", 1.5)


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.node("a", gpus=GPUS)
        made.opt_in()
        for name, workers in (("gives", 3), ("gets", 1)):
            made.job(name, workers, on="a")
            made.target(name, updateMode="Auto", max=4)
        yield made


@pytest.fixture
def agent(cluster: KubeCluster, tmp_path: Path) -> Iterator[Agent]:
    made = Agent(cluster, tmp_path, "auto", slot_seconds=0.1, limits={"changes_per_hour": 3600})
    yield made
    cluster.server.faults = lambda asked: None
    made.close()


def sizes(cluster: KubeCluster) -> tuple[int, int]:
    return cluster.size("gives"), cluster.size("gets")


def tick(cluster: KubeCluster, agent: Agent) -> None:
    agent.decide(gives=1, gets=3)
    assert sum(sizes(cluster)) <= GPUS
    for name in ("gives", "gets"):
        cluster.follow(name)


def unseen(cluster: KubeCluster, agent: Agent) -> list[str]:
    """Pods, Jobs and targets of which the agent does not know how they are now; and what namespaces allow."""
    sight = agent.backend.watch
    found = [line for _, line in (sight.namespaces(),) if line]
    for plural, cache in ((PODS, sight.pods), (JOBS, sight.jobs), (TARGETS, sight.targets)):
        objects = cluster.server.call(lambda plural=plural: list(cluster.server.store.all(plural, "team")))  # type: ignore[misc]
        there = {(each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in objects}
        found += [name for name, _ in there ^ {(name, entry.version) for (_, name), entry in cache.entries().items()}]
    return found


def comes(cluster: KubeCluster, agent: Agent) -> None:
    """All is as decided, within two decisions from when the agent sees again, and one for pods to leave."""
    wait_for(lambda: not unseen(cluster, agent), lambda: unseen(cluster, agent))
    for _ in range(3):
        tick(cluster, agent)
        wait_for(lambda: not unseen(cluster, agent), lambda: unseen(cluster, agent))
        if sizes(cluster) == (1, 3):
            return
    raise AssertionError(f"not as decided: {sizes(cluster)}")


@pytest.mark.parametrize("how", ["close", "silent", "half", "twice", "swapped"])
def test_sizes_come_though_watches_fail(cluster: KubeCluster, agent: Agent, how: str) -> None:
    wait_for(lambda: not unseen(cluster, agent))
    cluster.server.faults = lambda asked: Fault(watch=how) if asked.verb == "watch" else None
    cluster.server.close_watches()
    for _ in range(2):
        tick(cluster, agent)
    cluster.server.faults = lambda asked: None
    comes(cluster, agent)


@pytest.mark.parametrize("as_http", [True, False], ids=["as an answer", "in the stream"])
def test_sizes_come_though_what_was_seen_has_expired(cluster: KubeCluster, agent: Agent, as_http: bool) -> None:
    cluster.server.expired_as_http = as_http
    tick(cluster, agent)
    cluster.server.faults = lambda asked: Fault(503) if asked.verb in ("watch", "list") else None
    cluster.server.close_watches()
    tick(cluster, agent)
    cluster.annotate("gets", touched="yes")
    cluster.server.call(cluster.server.store.compact)
    cluster.server.faults = lambda asked: None
    comes(cluster, agent)


@pytest.mark.parametrize("fault", [FLOW_CONTROL, re_initializing()], ids=["flow control", "cache"])
def test_sizes_come_though_a_server_is_full_or_fills_its_cache(
    cluster: KubeCluster, agent: Agent, fault: Fault
) -> None:
    tick(cluster, agent)
    full = True
    cluster.server.faults = lambda asked: fault if full and asked.verb in ("watch", "list") else None
    cluster.server.close_watches()
    wait_for(lambda: agent.counted("fedl2_agent_api_failures_total", error="unanswered") >= 2)
    full = False
    comes(cluster, agent)


def test_pods_that_went_while_nobody_watched_give_their_room(cluster: KubeCluster, agent: Agent) -> None:
    tick(cluster, agent)
    away = True
    cluster.server.faults = lambda asked: Fault(503) if away and asked.verb in ("watch", "list") else None
    cluster.server.close_watches()
    cluster.follow("gives")
    cluster.server.call(cluster.server.store.compact)
    away = False
    comes(cluster, agent)


def test_sizes_come_after_a_store_was_set_back(cluster: KubeCluster, agent: Agent) -> None:
    wait_for(lambda: not unseen(cluster, agent))
    before = cluster.server.store.version
    for number in range(30):
        cluster.annotate("gets", touched=str(number))
    wait_for(lambda: not unseen(cluster, agent))
    cluster.server.call(lambda: cluster.server.store.set_back(cluster.server.store.version - before))
    cluster.server.close_watches()
    comes(cluster, agent)


def test_a_node_that_others_overfilled_has_nothing_to_give(cluster: KubeCluster, agent: Agent) -> None:
    for number in range(3):  # by spec.nodeName: no scheduler was asked
        cluster.foreign_pod(f"foreign-{number}")
    wait_for(lambda: not unseen(cluster, agent))
    for _ in range(2):
        agent.decide(gives=3, gets=3)
        assert cluster.size("gets") == 1, "nothing is free, and less than nothing is nothing"
        assert cluster.size("gives") <= 3
    state = agent.backend.poll().state
    assert all(node.capacity.gpu >= 0 for node in state.nodes)
    for number in range(3):
        cluster.remove_pod(f"foreign-{number}")
    comes(cluster, agent)


def test_a_discovery_that_lags_is_waited_for(cluster: KubeCluster, agent: Agent) -> None:
    lags = True

    def faults(asked: Asked) -> Fault | None:
        reads = asked.verb in ("list", "watch") and "elastictargets" in asked.resource
        return NOT_SERVED_YET if lags and reads else None

    cluster.server.faults = faults
    cluster.server.close_watches()
    wait_for(lambda: agent.counted("fedl2_agent_api_failures_total", error="not-found") >= 1)
    lags = False
    comes(cluster, agent)
