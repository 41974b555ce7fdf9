"""The Kubernetes backend against a server: it recommends, says what it cannot use, and changes nothing else."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.asked import Asked
from apiserver.serving import Fault
from kube_agents import DEADLINE_SECONDS, Agent, wait_for
from kube_clients import api_of
from kube_cluster import JOBS, TARGETS, KubeCluster, kube_cluster, pointing_at

from cluster_agent.errors import BackendUnavailable
from cluster_agent.kubernetes.elector import Elector
from policy_net.domain import Allocation, ClusterState, Decision, Trigger
from policy_net.errors import InvalidAllocation


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.node("a")
        yield made


@pytest.fixture
def agent(cluster: KubeCluster, tmp_path: Path) -> Iterator[Agent]:
    made = Agent(cluster, tmp_path)
    yield made
    made.stop.set()
    made.backend.close()


def test_a_recommendation_stands_in_the_status_and_nothing_else_has_changed(cluster: KubeCluster, agent: Agent) -> None:
    job = cluster.job("train", workers=2, on="a")
    cluster.target("train", modelType="resnet-50")
    assert agent.decide(train=3) is Trigger.ARRIVAL
    status = cluster.status_of("train")
    found = status["recommendation"]
    assert (found["workers"], found["current"], found["message"]) == (3, 2, "more: 3 rather than 2")
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "Advised")
    assert cluster.server.call(lambda: cluster.server.store.get(JOBS, "team", "train")) == job
    assert cluster.writes() == [("patch", "elastictargets.fedl2.io", "status")]


def test_a_status_is_written_only_where_it_says_something_new(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    for _ in range(4):
        agent.decide(train=3)
    assert len(cluster.writes()) == 1
    agent.decide(train=0)
    assert cluster.status_of("train")["recommendation"]["message"].startswith("wait: others get more done")
    assert len(cluster.writes()) == 2


def test_a_target_that_cannot_be_used_says_why_and_the_others_go_on(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    cluster.target("missing")
    wait_for(lambda: bool(agent.decide()) and bool(cluster.status_of("missing")))
    (condition,) = cluster.status_of("missing")["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "there is no Job missing in namespace team")
    assert cluster.status_of("train")["recommendation"]["workers"] == 1
    cluster.job("missing", workers=1, on="a")
    wait_for(lambda: bool(agent.decide()) and "recommendation" in cluster.status_of("missing"))
    (condition,) = cluster.status_of("missing")["conditions"]
    assert condition["status"] == "True"


def test_without_targets_it_waits_and_says_what_is_wrong_with_others(cluster: KubeCluster, agent: Agent) -> None:
    cluster.target("missing")
    observed: list[object] = []
    thread = threading.Thread(target=lambda: observed.append(agent.backend.observe()))
    thread.start()
    wait_for(lambda: bool(cluster.status_of("missing")))
    assert thread.is_alive()
    cluster.job("missing", workers=1, on="a")
    thread.join(DEADLINE_SECONDS)
    assert observed != [None]
    assert observed


def test_samples_that_a_job_counts_are_its_progress(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train", progressFrom={"annotations": {"samples": "done"}})
    cluster.annotate("train", done="100")
    wait_for(lambda: bool(agent.decide()) and agent.backend.observe() is not None)
    cluster.annotate("train", done="700")
    agent.decide()
    (entry,) = agent.progress
    assert entry.samples in (0.0, 600.0)  # it may have been seen at this decision already
    cluster.annotate("train", done="50")
    agent.decide()
    agent.decide()
    assert agent.progress[0].samples == 0.0


def test_a_job_that_is_over_is_finished_once(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.job("other", workers=1, on="a")
    cluster.target("train")
    cluster.target("other")
    agent.decide()
    agent.backend.observe()
    conditions = [{"type": "Complete", "status": "True"}]
    cluster.change(JOBS, "train", "status", status={"conditions": conditions})
    finished = []
    for _ in range(4):
        agent.decide()
        finished += [entry.job_id for entry in agent.progress if entry.finished]
    assert finished == ["team/train"]
    assert agent.backend.status().jobs_done == 1


def test_a_node_that_comes_is_a_reason_to_decide(cluster: KubeCluster, tmp_path: Path) -> None:
    agent = Agent(cluster, tmp_path, slot_seconds=600.0)
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    joining = threading.Thread(target=lambda: _join(cluster))
    joining.start()
    agent.decide()
    joining.join()
    found = agent.backend.observe()
    assert found is not None
    assert found[1] is Trigger.NODE_CHANGE
    agent.stop.set()
    agent.backend.close()


def _join(cluster: KubeCluster) -> None:
    """Have a node come once a decision was told, which ends the wait for the next one."""
    wait_for(lambda: "recommendation" in cluster.status_of("train"))
    cluster.node("b")


def _observed_by(agent: Agent) -> ClusterState:
    found = agent.backend.observe()
    assert found is not None
    return found[0]


def test_what_comes_while_a_decision_is_taken_is_news(cluster: KubeCluster, tmp_path: Path) -> None:
    agent = Agent(cluster, tmp_path, slot_seconds=600.0)
    cluster.job("train", workers=1, on="a")
    cluster.target("train")
    joining = threading.Thread(target=lambda: _join(cluster))
    joining.start()
    agent.decide()  # what is advised stands there from now on, so that nothing is written below
    joining.join()
    _observed_by(agent)
    cluster.job("other", workers=1, on="a")
    cluster.target("other")
    wait_for(lambda: "team/other" in agent.backend.poll().members)
    # In less than a slot, which is longer than a test may take.
    agent.backend.apply(Decision({"team/train": Allocation(1, 0)}))
    assert {job.job_id for job in _observed_by(agent).jobs} == {"team/train", "team/other"}
    agent.close()


def test_what_comes_while_there_is_nothing_to_decide_is_news(cluster: KubeCluster, tmp_path: Path) -> None:
    agent = Agent(cluster, tmp_path, slot_seconds=600.0)
    cluster.job("train", workers=1, on="a")
    cluster.target("missing")
    made: list[Any] = []

    def make(asked: Asked) -> Fault | None:
        if not asked.writes or made:
            return None
        made.append(cluster.server.store.create(TARGETS, pointing_at("train")))
        return Fault(hang_seconds=0.5)  # until it is seen, before the agent begins to wait

    cluster.server.faults = make
    assert [job.job_id for job in _observed_by(agent).jobs] == ["team/train"]
    agent.close()


def test_room_of_pods_that_are_gone_is_news(cluster: KubeCluster, tmp_path: Path) -> None:
    agent = Agent(cluster, tmp_path, slot_seconds=600.0)
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    cluster.foreign_pod("left-over")
    wait_for(lambda: len(agent.backend.watch.pods.entries()) == 3 and bool(agent.backend.poll().members))
    assert _observed_by(agent).total.gpu == 3

    def leave() -> None:
        wait_for(lambda: "recommendation" in cluster.status_of("train"))
        cluster.remove_pod("left-over")

    leaving = threading.Thread(target=leave)
    leaving.start()
    # In less than a slot, which is longer than a test may take.
    agent.backend.apply(Decision({"team/train": Allocation(2, 0)}))
    leaving.join()
    assert _observed_by(agent).total.gpu == 4
    agent.close()


def test_an_impossible_decision_writes_nothing(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train", most=4)
    for sizes in (
        {"team/nobody": Allocation(1, 0)},
        {"team/train": Allocation(5, 0)},
        {"team/train": Allocation(1, 1)},
    ):
        assert agent.backend.observe() is not None
        with pytest.raises(InvalidAllocation):
            agent.backend.apply(Decision(sizes))
    assert cluster.writes() == []


def test_a_server_that_does_not_answer_is_unavailable_and_then_back(cluster: KubeCluster, tmp_path: Path) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    cluster.server.faults = lambda asked: Fault(code=503)
    agent = Agent(cluster, tmp_path, request_seconds=0.3)
    with pytest.raises(BackendUnavailable, match=r"nodes could not be read yet from .*503"):
        agent.backend.observe()
    assert agent.backend.not_ready.startswith("nodes could not be read yet from ")
    cluster.server.faults = lambda asked: None
    wait_for(lambda: _answers(agent))
    assert agent.backend.not_ready == ""
    agent.stop.set()
    agent.backend.close()


def test_whoever_knows_who_has_the_lease_is_ready(cluster: KubeCluster, tmp_path: Path) -> None:
    elector = Elector(api_of(cluster.server, "agent"), "fedl2", "fedl2-agent", "me", time.monotonic, time.time)
    agent = Agent(cluster, tmp_path, elector=elector)
    wait_for(lambda: agent.backend.not_ready == "")
    assert elector.holder == "me"
    agent.stop.set()
    agent.backend.close()


def _answers(agent: Agent) -> bool:
    try:
        return agent.backend.observe() is not None
    except BackendUnavailable:
        return False


def test_advice_that_could_not_be_written_is_written_later(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    cluster.server.faults = lambda asked: Fault(code=500) if asked.writes else None
    agent.decide(train=3)
    assert cluster.status_of("train") == {}
    cluster.server.faults = lambda asked: None
    agent.decide(train=3)
    assert cluster.status_of("train")["recommendation"]["workers"] == 3


def test_it_never_asks_for_what_its_role_does_not_grant(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", workers=2, on="a")
    cluster.target("train")
    asked_before = cluster.server.may
    refused: list[object] = []

    def may(asked: Any) -> bool:
        if not asked_before(asked):
            refused.append(asked)
        return asked_before(asked)

    cluster.server.may = may
    agent.decide(train=3)
    agent.decide(train=2)
    assert refused == []
    devices = ("resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io")
    assert {(asked.verb, asked.resource) for asked in cluster.server.asked if asked.user == "agent"} <= {
        *((verb, resource) for verb in ("list", "watch") for resource in ("nodes", "pods", "jobs.batch", *devices)),
        *((verb, "elastictargets.fedl2.io") for verb in ("list", "watch", "patch")),
    }
