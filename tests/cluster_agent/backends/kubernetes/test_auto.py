"""Sizes that are set: who opted in gets what was decided, within limits, and is told why where not."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.serving import Asked, Fault
from kube_agents import Agent, wait_for
from kube_clients import api_of
from kube_cluster import JOBS, TARGETS, KubeCluster, kube_cluster

from cluster_agent.kubernetes.api_server import ContentType
from cluster_agent.kubernetes.elector import Elector

Json = dict[str, Any]
NOTED = {
    "workers": 2,
    "time": "2026-01-01T00:00:00Z",
    "policyVersion": "v1",
    "decisionId": 1,
    "leaseEpoch": 0,
    "reason": "more",
    "recentChanges": [],
}


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.node("a")
        made.opt_in()
        yield made


@pytest.fixture
def start(cluster: KubeCluster, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def begin(user: str = "auto", elector: Elector | None = None, **settings: Any) -> Agent:
        made.append(Agent(cluster, tmp_path, user, elector, **settings))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    return start()


def conditions(cluster: KubeCluster, name: str = "train") -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    found = cluster.status_of(name).get("conditions", ())
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def message(cluster: KubeCluster, kind: str, name: str = "train") -> str:
    return next(each["message"] for each in cluster.status_of(name)["conditions"] if each["type"] == kind)


def auto(cluster: KubeCluster, name: str = "train", workers: int = 2, **spec: Any) -> None:
    """A Job and the target that has its size set."""
    of_job = {key: spec.pop(key) for key in ("suspend",) if key in spec}
    cluster.job(name, workers, on="a", **of_job)
    cluster.target(name, **{"updateMode": "Auto", **spec})


def test_a_size_is_set_and_who_set_it_stands_in_the_status_and_in_events(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    agent.decide(train=3)
    assert cluster.size("train") == 3
    status = cluster.status_of("train")
    allocation = status["allocation"]
    assert (allocation["workers"], allocation["policyVersion"], allocation["decisionId"]) == (3, "v7", 1)
    assert (allocation["reason"], allocation["leaseEpoch"]) == ("more: 3 rather than 2", 0)
    assert len(allocation["recentChanges"]) == 1
    assert conditions(cluster) == {
        "Ready": ("True", "Set"),
        "Resized": ("True", "Set"),
        "Limited": ("False", "WithinLimits"),
    }
    assert status["recommendation"]["current"] == 3
    wait_for(lambda: len(cluster.events()) == 2)
    line = "more: 3 rather than 2 (policy v7, decision 1)"
    assert sorted(cluster.events()) == [("ElasticTarget", "Resized", line), ("Job", "Resized", line)]


def test_a_calm_cluster_costs_no_calls(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    agent.decide(train=3)
    cluster.follow("train")
    wait_for(lambda: len(cluster.events()) == 2)
    agent.decide(train=3)
    before = cluster.writes("auto")
    assert before.count(("patch", JOBS, "")) == 1
    assert before.count(("patch", TARGETS, "status")) == 1
    for _ in range(3):
        agent.decide(train=3)
    assert cluster.writes("auto") == before


def test_without_the_namespace_s_word_auto_is_advice(start: Callable[..., Agent], tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a")
        auto(cluster)
        agent = Agent(cluster, tmp_path, "auto")
        agent.decide(train=3)
        assert cluster.size("train") == 2
        assert conditions(cluster) == {"Ready": ("True", "Advised"), "Limited": ("True", "NotOptedIn")}
        assert message(cluster, "Limited") == "namespace team has no label fedl2.io/update-mode=Auto"
        assert cluster.status_of("train")["recommendation"]["workers"] == 3
        assert cluster.events() == []
        cluster.opt_in()
        wait_for(lambda: bool(agent.decide(train=3)) and cluster.size("train") == 3)
        agent.close()


def test_with_the_role_of_advice_auto_is_advice_and_says_why(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    auto(cluster)
    agent = start("agent")
    agent.decide(train=3)
    assert cluster.size("train") == 2
    assert conditions(cluster)["Limited"] == ("True", "NotOptedIn")
    assert "namespaces cannot be read: " in message(cluster, "Limited")
    assert set(cluster.writes()) == {("patch", TARGETS, "status")}


def test_its_role_is_enough(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    may, refused = cluster.server.may, []

    def watched(asked: Asked) -> bool:
        if not may(asked):
            refused.append(asked)
        return may(asked)

    cluster.server.may = watched
    agent.decide(train=3)
    wait_for(lambda: len(cluster.events()) == 2)
    agent.decide(train=1)
    assert cluster.size("train") == 1
    assert refused == []
    granted = {("patch", JOBS), ("patch", TARGETS), ("create", "events"), ("patch", "events")}
    assert {(verb, what) for verb, what, _ in cluster.writes("auto")} <= granted


def test_who_only_advises_reads_no_namespaces(cluster: KubeCluster, agent: Agent) -> None:
    cluster.job("train", 2, on="a")
    cluster.target("train")
    agent.decide(train=3)
    assert "namespaces" not in {asked.resource for asked in cluster.server.asked if asked.user == "auto"}


def test_a_running_job_is_never_stopped_and_a_suspended_one_is_started(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster, "runs", 2)
    auto(cluster, "waits", 2, suspend=True, min=2)
    agent.decide(runs=0, waits=0)
    assert (cluster.size("runs"), cluster.size("waits")) == (1, 0)
    assert conditions(cluster, "runs")["Limited"] == ("True", "BoundsAndShares")
    assert conditions(cluster, "waits")["Resized"] == ("False", "Waits")
    cluster.follow("runs")
    wait_for(lambda: bool(agent.decide(runs=1, waits=3)) and cluster.size("waits") == 3)
    assert cluster.status_of("waits")["allocation"]["reason"] == "start with 3"
    assert cluster.status_of("waits")["allocation"]["recentChanges"] == []
    wait_for(lambda: ("Job", "Started") in {each[:2] for each in cluster.events()})


def test_what_grows_waits_until_pods_that_left_are_gone(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    agent = start(slot_seconds=30.0)
    auto(cluster, "gives", 3, max=4)
    auto(cluster, "gets", 1, max=4)
    thread = threading.Thread(target=agent.decide, kwargs={"gives": 1, "gets": 3}, daemon=True)
    thread.start()
    wait_for(lambda: cluster.size("gives") == 1)
    wait_for(lambda: conditions(cluster, "gets").get("Resized") == ("False", "WaitsForRoom"))
    assert message(cluster, "Resized", "gets") == "to 3 workers rather than 1, it waits for pods of others to be gone"
    cluster.follow("gives", leaving=True)
    cluster.annotate("gets", done="1")
    wait_for(lambda: any(reason == "WaitsForRoom" for _, reason, _ in cluster.events()))
    assert cluster.size("gets") == 1, "pods on their way out still have their room"
    cluster.follow("gives")
    wait_for(lambda: cluster.size("gets") == 3)
    wait_for(lambda: conditions(cluster, "gets")["Resized"] == ("True", "Set"))
    agent.stop.set()
    thread.join(60.0)


def test_who_is_frozen_while_it_waits_does_not_grow(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    agent = start(slot_seconds=30.0, debounce_seconds=30.0)
    auto(cluster, "gives", 3, max=4)
    auto(cluster, "gets", 1, max=4)
    thread = threading.Thread(target=agent.decide, kwargs={"gives": 1, "gets": 3}, daemon=True)
    thread.start()
    wait_for(lambda: conditions(cluster, "gets").get("Resized") == ("False", "WaitsForRoom"))
    cluster.annotate("gets", **{"fedl2.io/frozen": "true"})
    wait_for(lambda: agent.backend.poll().members["team/gets"].facts.annotations != {})
    cluster.follow("gives")
    wait_for(lambda: conditions(cluster, "gets")["Resized"] == ("False", "Frozen"))
    assert cluster.size("gets") == 1
    agent.stop.set()
    thread.join(60.0)


def test_a_target_that_is_made_anew_while_it_waits_does_not_get_what_the_one_before_was_to_have(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    agent = start(slot_seconds=30.0, debounce_seconds=30.0)
    auto(cluster, "gives", 3, max=4)
    auto(cluster, "gets", 1, max=4)
    auto(cluster, "stays", 1, max=1)
    thread = threading.Thread(target=agent.decide, kwargs={"gives": 1, "gets": 3}, daemon=True)
    thread.start()
    wait_for(lambda: conditions(cluster, "gets").get("Resized") == ("False", "WaitsForRoom"))
    before = agent.backend.poll().members["team/gets"].target.uid
    cluster.server.call(lambda: cluster.server.store.delete(TARGETS, "team", "gets", {}))
    cluster.target("gets", updateMode="Auto", max=4)
    wait_for(lambda: bool((seen := agent.backend.poll().members.get("team/gets")) and seen.target.uid != before))
    cluster.follow("gives")
    wait_for(lambda: agent.backend.poll().members["team/gives"].is_whole)
    wait_for(lambda: agent.backend._auto._waiting == [])
    assert cluster.size("gets") == 1, "nobody decided anything about this one"
    agent.stop.set()
    thread.join(60.0)
    assert cluster.size("gets") == 1


def test_who_waits_in_vain_gets_what_there_is_and_says_so(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    agent = start(slot_seconds=30.0, limits={"room_seconds": 0.5})
    auto(cluster, "gives", 2, max=4)
    auto(cluster, "gets", 1, max=4)
    thread = threading.Thread(target=agent.decide, kwargs={"gives": 1, "gets": 3}, daemon=True)
    thread.start()
    wait_for(lambda: cluster.size("gets") == 2)
    wait_for(lambda: "for no more" in message(cluster, "Resized", "gets"))
    assert conditions(cluster, "gets")["Resized"] == ("False", "WaitsForRoom")
    agent.stop.set()
    thread.join(60.0)


def test_pods_that_never_come_have_been_promised_their_room(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster, "first", 1, max=4)
    auto(cluster, "second", 1, max=4)
    agent.decide(first=3, second=1)
    assert cluster.size("first") == 3
    agent.decide(first=3, second=2)
    assert cluster.size("second") == 1, "four GPUs, of which three are the first's though it has one pod"
    assert conditions(cluster, "second")["Limited"] == ("True", "BoundsAndShares")


@pytest.mark.parametrize("what", ["namespace", "target", "job"])
def test_what_is_frozen_stays_as_it_is(cluster: KubeCluster, agent: Agent, what: str) -> None:
    auto(cluster)
    frozen = {"fedl2.io/frozen": "true"}
    if what == "namespace":
        cluster.opt_in(**frozen)
    elif what == "job":
        cluster.annotate("train", **frozen)
    else:
        found = cluster.server.call(lambda: cluster.server.store.get(TARGETS, "team", "train"))
        cluster.change(TARGETS, "train", metadata={**found["metadata"], "annotations": frozen})
    wait_for(lambda: bool(agent.decide(train=2)) and conditions(cluster)["Limited"] == ("True", "Frozen"))
    agent.decide(train=4)
    assert cluster.size("train") == 2
    assert conditions(cluster)["Resized"] == ("False", "Frozen")
    wait_for(lambda: {("ElasticTarget", "Frozen"), ("Job", "Frozen")} <= {each[:2] for each in cluster.events()})


def test_a_job_changes_so_often_and_no_more_also_after_a_restart(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    limits = {"changes_per_hour": 2}
    agent = start(limits=limits)
    auto(cluster)
    for size in (3, 4):
        agent.decide(train=size)
        cluster.follow("train")
        wait_for(lambda size=size: bool(agent.decide(train=size)) and cluster.size("train") == size)  # type: ignore[misc]
    agent.close()
    again = start(limits=limits)
    again.decide(train=2)
    assert cluster.size("train") == 4
    assert conditions(cluster)["Limited"] == ("True", "LimitedByRate")
    assert "2 changes within an hour, of at most 2" in message(cluster, "Limited")


def rival(cluster: KubeCluster, agent: Agent, workers: int, manager: str = "keda-operator") -> None:
    """Have somebody else set a Job's size, which the agent comes to see."""
    cluster.server.may = lambda asked: True
    size = {"spec": {"parallelism": workers, "completions": workers}}
    path = "/apis/batch/v1/namespaces/team/jobs/train"
    api_of(cluster.server, "root").patch(path, size, ContentType.MERGE_PATCH, {"fieldManager": manager})
    wait_for(agent.has_seen_all)


def skip(agent: Agent, seconds: float) -> None:
    """Let time pass, after which the cluster is heard of again."""
    agent.skipped_seconds += seconds
    wait_for(lambda: agent.backend.watch.is_fresh and not agent.backend.watch.namespaces()[1])


def test_who_sets_a_size_back_is_named_and_left_alone_after_the_second_time(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    agent.decide(train=4)
    rival(cluster, agent, 2)
    agent.decide(train=4)
    assert cluster.size("train") == 4
    line = "keda-operator has set it back to 2 workers, after it was given 4"
    assert cluster.status_of("train")["allocation"]["reason"] == f"more: 4 rather than 2; {line}"
    wait_for(lambda: ("Job", "SetBack", line) in cluster.events())
    rival(cluster, agent, 2)
    agent.decide(train=4)
    assert cluster.size("train") == 2
    assert conditions(cluster)["Limited"] == ("True", "SetBack")
    twice = "keda-operator has set it back to 2 workers twice, after it was given 4: it keeps that size until "
    assert message(cluster, "Limited").startswith(twice)
    wait_for(lambda: sum(reason == "SetBack" for _, reason, _ in cluster.events()) == 4)
    for _ in range(3):
        agent.decide(train=4)
    assert cluster.size("train") == 2
    # Later it tries again, and is given up for twice as long.
    skip(agent, 600.0)
    agent.decide(train=4)
    assert cluster.size("train") == 4
    rival(cluster, agent, 2)
    agent.decide(train=4)
    skip(agent, 700.0)
    agent.decide(train=4)
    assert cluster.size("train") == 2
    assert "back to 2 workers 3 times" in message(cluster, "Limited")


def test_a_size_that_is_set_back_stays_known_to_the_next_agent(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    auto(cluster)
    first = start()
    first.decide(train=4)
    rival(cluster, first, 2)
    first.close()
    second = start()
    second.decisions = first.decisions  # as its log has it: by time, to the second, and number a change is known
    wait_for(lambda: bool(second.decide(train=4)) and cluster.size("train") == 4)
    rival(cluster, second, 2)
    second.decide(train=4)
    assert cluster.size("train") == 2
    assert conditions(cluster)["Limited"] == ("True", "SetBack")


def test_what_an_agent_did_and_did_not_come_to_say_is_said_by_the_next(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    agent = start(limits={"changes_per_hour": 1})
    auto(cluster)
    cluster.server.faults = lambda asked: Fault(code=500) if asked.part == "status" else None
    agent.decide(train=3)
    assert cluster.size("train") == 3
    assert cluster.status_of("train") == {}
    agent.close()
    cluster.server.faults = lambda asked: None
    again = start(limits={"changes_per_hour": 1})
    again.decide(train=2)
    allocation = cluster.status_of("train")["allocation"]
    assert (allocation["workers"], allocation["decisionId"]) == (3, 1)
    assert conditions(cluster)["Limited"] == ("True", "LimitedByRate")
    assert cluster.size("train") == 3


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "{}", json.dumps({"workers": "many"}), json.dumps({**NOTED, "recentChanges": ["yesterday"]})],
)
def test_a_note_that_somebody_damaged_is_none(cluster: KubeCluster, agent: Agent, damage: str) -> None:
    auto(cluster)
    cluster.annotate("train", **{"fedl2.io/allocation": damage})
    wait_for(lambda: bool(agent.decide(train=3)) and cluster.size("train") == 3)
    assert cluster.status_of("train")["allocation"]["workers"] == 3


def test_in_a_maintenance_window_nothing_changes(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    agent = start(limits={"maintenance": [{"from": "00:00", "to": "00:00"}]})
    auto(cluster)
    auto(cluster, "waits", suspend=True)
    agent.decide(train=3, waits=1)
    assert (cluster.size("train"), cluster.size("waits")) == (2, 0)
    assert conditions(cluster)["Resized"] == ("False", "MaintenanceWindow")


def test_what_stands_in_for_a_failed_policy_changes_nothing(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    agent.decide(("fallback:nan",), train=3)
    assert cluster.size("train") == 2
    assert conditions(cluster)["Resized"] == ("False", "PolicyFailed")
    agent.decide(("clamped:over-cap",), train=3)
    assert cluster.size("train") == 3
    assert conditions(cluster)["Limited"] == ("False", "WithinLimits")


def test_a_namespace_has_its_share(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    agent = start(limits={"min_shares": {"team": 0.75}})
    auto(cluster)
    agent.decide(train=1)
    assert cluster.size("train") == 3
    assert conditions(cluster)["Limited"] == ("True", "BoundsAndShares")


def test_a_job_that_kueue_holds_is_kueues(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster, suspend=True)
    found = cluster.server.call(lambda: cluster.server.store.get(JOBS, "team", "train"))
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    cluster.change(JOBS, "train", metadata={**found["metadata"], "labels": labels})
    wait_for(lambda: bool(agent.decide(train=3)) and conditions(cluster).get("Limited") == ("True", "WaitsForKueue"))
    assert message(cluster, "Limited") == "Kueue starts it, when queue gpus has room"
    assert cluster.size("train") == 0


def test_who_goes_back_to_off_is_left_alone_and_says_nothing_of_sizes(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster)
    agent.decide(train=3)
    found = cluster.server.call(lambda: cluster.server.store.get(TARGETS, "team", "train"))
    cluster.change(TARGETS, "train", spec={**found["spec"], "updateMode": "Off"})
    wait_for(lambda: agent.backend.poll().members["team/train"].target.mode == "Off")
    agent.decide(train=1)
    assert conditions(cluster) == {"Ready": ("True", "Advised")}
    assert cluster.size("train") == 3


def test_samples_count_only_where_the_size_was_one_and_all_workers_were_there(
    cluster: KubeCluster, agent: Agent
) -> None:

    def has_done(samples: int) -> None:
        cluster.annotate("train", done=str(samples))
        wait_for(lambda: agent.backend.poll().members["team/train"].samples == samples)

    def samples_after(samples: int, workers: int) -> float:
        agent.backend.observe()
        has_done(samples)
        agent.decide(train=workers)
        return agent.progress[0].samples

    auto(cluster, progressFrom={"annotations": {"samples": "done"}})
    wait_for(lambda: "team/train" in agent.backend.poll().members)
    has_done(100)
    wait_for(lambda: agent.backend.poll().members["team/train"].is_whole)
    assert samples_after(150, 2) == 50.0
    assert samples_after(200, 3) == 0.0, "of two sizes"
    assert cluster.size("train") == 3
    assert samples_after(900, 3) == 0.0, "two pods of three"
    cluster.follow("train")
    wait_for(lambda: agent.backend.poll().members["team/train"].is_whole)
    assert samples_after(1500, 3) == 600.0


FAULTS = {
    "500 before": Fault(code=500),
    "cut after": Fault(cut=True),
    "409": Fault(code=409),
    "403": Fault(code=403),
    "429": Fault(code=429, retry_after=1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("where", [(JOBS, ""), (TARGETS, "status"), ("events", "")])
def test_a_fault_at_any_write_is_survived_and_what_was_decided_comes(
    cluster: KubeCluster, start: Callable[..., Agent], fault: str, restart: bool, where: tuple[str, str]
) -> None:
    agent = start()
    auto(cluster, "gives", 3, max=4)
    auto(cluster, "gets", 1, max=4)
    over: list[int] = []

    def faults(asked: Asked) -> Fault | None:
        is_it = asked.user == "auto" and asked.writes and (asked.resource, asked.part) == where
        return FAULTS[fault] if is_it else None

    def tick(by: Agent) -> None:
        by.decide(gives=1, gets=3)
        over.append(cluster.size("gives") + cluster.size("gets"))
        for name in ("gives", "gets"):
            cluster.follow(name)

    cluster.server.faults = faults
    tick(agent)
    if restart:
        agent.close()
        agent = start()
    tick(agent)
    cluster.server.faults = lambda asked: None
    for name in ("gives", "gets"):  # a new version ends what is in doubt
        cluster.annotate(name, touched="yes")

    def is_done() -> bool:
        tick(agent)
        stands = [cluster.status_of(name).get("allocation", {}).get("workers") for name in ("gives", "gets")]
        return (cluster.size("gives"), cluster.size("gets")) == (1, 3) and (restart or stands == [1, 3])

    wait_for(is_done)
    assert max(over) <= 4


def test_after_failures_a_job_is_advised_and_others_go_on(cluster: KubeCluster, agent: Agent) -> None:
    auto(cluster, "refused", 1)
    auto(cluster, "other", 1)
    cluster.server.faults = lambda asked: (
        Fault(code=403) if asked.verb == "patch" and asked.resource == JOBS and asked.name == "refused" else None
    )
    for _ in range(4):
        agent.decide(refused=2, other=2)
    assert cluster.size("other") == 2
    assert conditions(cluster, "refused")["Limited"] == ("True", "ChangeFailed")
    assert "3 changes failed, so there is only advice for 5 minutes" in message(cluster, "Limited", "refused")
    tries = cluster.writes("auto").count(("patch", JOBS, ""))
    agent.decide(refused=2, other=2)
    assert cluster.writes("auto").count(("patch", JOBS, "")) == tries
    wait_for(lambda: any(each[1] == "ChangeFailed" for each in cluster.events()))


@pytest.mark.heavy
def test_who_lost_the_lease_in_the_middle_sets_nothing_more(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    cluster.server.tokens |= {"one": "one", "other": "other"}
    now = {"one": 0.0, "other": 0.0}

    def elector(name: str) -> Elector:
        return Elector(api_of(cluster.server, name), "fedl2", "fedl2-agent", name, lambda: now[name], lambda: 1.8e9)

    def other_acts() -> bool:
        now["other"] += 1.0
        return other.backend.acts

    auto(cluster)
    one = start(elector=elector("one"))
    assert one.backend.observe() is not None
    # The first is cut off, and stands still until its lease has run out.
    cluster.server.faults = lambda asked: Fault(code=503) if asked.user == "one" else None
    now["one"] = 100.0
    other = start(elector=elector("other"))
    wait_for(other_acts)
    one.decide(train=4)
    assert cluster.size("train") == 2
    assert cluster.writes("auto") == []
    other.decide(train=3)
    assert cluster.size("train") == 3
    assert cluster.status_of("train")["allocation"]["leaseEpoch"] == 1_800_000_001
