"""What a decision is about on a cluster: targets that can be used, and the room that others leave them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.backends.kubernetes.observation import (
    Observed,
    OwnJobs,
    SeenCluster,
    ended_since,
    observed,
    seconds_of,
    targets_alone,
)
from cluster_agent.backends.kubernetes.pools import seats
from cluster_agent.kubernetes.capacity import Amounts, NodeChoice, node_facts, pod_facts
from cluster_agent.kubernetes.targets import elastic_target, job_facts
from policy_net.domain import SUSPENDED, Allocation, Decision, Job, JobKind, Resources

Json = dict[str, Any]
NOW = 1_800_000_000.0


def node(name: str = "a", cpu: str = "8", memory: str = "8Gi", gpus: int = 4, **spec: Any) -> Json:
    allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus), "pods": "110"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}


def job(name: str = "train", workers: int = 2, requests: Json | None = None, **spec: Any) -> Json:
    asks = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"} if requests is None else requests
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": asks}}]}}
    sizes = {"parallelism": workers, "completions": workers, "completionMode": "Indexed"}
    return {"metadata": metadata, "spec": {**sizes, "template": template, **spec}}


def target(name: str = "train", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "team", "uid": f"t-{name}", "generation": 1, "creationTimestamp": created}
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
    return {"metadata": metadata, "spec": {"targetRef": ref, "min": 1, "max": 4, **spec}}


def pod(owner: str, on: str = "a", cpu: str = "1") -> Json:
    requests = {"cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": "p", "ownerReferences": [{"uid": owner, "controller": True}]},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


def poll(
    targets: list[Json],
    jobs: list[Json],
    nodes: list[Json] | None = None,
    pods: Any = (),
    untold: frozenset[str] = frozenset(),
    own: OwnJobs | None = None,
) -> Observed:
    kept = [pod_facts(each) for each in pods]
    found = {("Job", "team", each["metadata"]["name"]): job_facts(each) for each in jobs}
    seen = SeenCluster(
        [node_facts(each) for each in nodes or [node()]],
        [each for each in kept if each is not None],
        [elastic_target(each) for each in targets],
        found,
    )
    return observed(seen, NOW, 300.0, untold, own)


def test_a_target_and_its_job_are_an_all_reduce_job_of_the_size_that_it_has() -> None:
    found = poll([target(modelType="resnet-50")], [job()])
    (one,) = found.state.jobs
    assert (one.job_id, one.job_type, one.kind) == ("team/train", "resnet-50", JobKind.ALLREDUCE)
    assert (one.current, one.requested) == (Allocation(2, 0), Allocation(2, 0))
    assert (one.max_workers, one.min_workers, one.max_ps, one.min_ps) == (4, 1, 0, 0)
    assert one.submit_time_seconds == seconds_of("2026-01-01T00:00:00Z")
    assert not one.work_known
    assert found.left_out == {}


@pytest.mark.parametrize(
    "name", ["huawei.com/Ascend910", "google.com/tpu", "gpu.intel.com/xe", "nvidia.com/gpu.shared"]
)
def test_accelerators_count_by_any_name_of_devices_or_of_parts_of_them(name: str) -> None:
    free_capacity = node(gpus=0)
    free_capacity["status"]["allocatable"] |= {name: "4", "aliyun.com/gpu-mem": "80"}
    found = poll([target()], [job(requests={"cpu": "1", name: "2", "aliyun.com/gpu-mem": "16"})], [free_capacity])
    assert [node.capacity.gpu for node in found.state.nodes] == [4]
    assert found.state.jobs[0].worker_demand.gpu == 2


def test_what_others_take_is_not_there_and_what_its_own_pods_take_is() -> None:
    found = poll([target()], [job()], pods=[pod("uid-train"), pod("uid-train"), pod("somebody")])
    assert [each.capacity for each in found.state.nodes] == [Resources(7000, 3)]


def test_memory_counts_as_cpu_so_that_neither_is_promised_twice() -> None:
    big = job(requests={"cpu": "1", "memory": "4Gi"})
    found = poll([target()], [big], [node(cpu="8", memory="8Gi")])
    (one,) = found.state.jobs
    assert one.worker_demand == Resources(4000, 0)
    assert found.state.nodes[0].capacity.cpu_milli == 8000


def other(on: str, cpu: str = "0", memory: str = "0") -> Json:
    found = pod("somebody", on)
    found["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "memory": memory}
    return found


@pytest.mark.parametrize(
    ("asks", "others", "fit"),
    [
        pytest.param(("1", "4Gi"), [("a", "16", "0"), ("b", "5", "0")], 11, id="all CPU of another node is taken"),
        pytest.param(("1", "1Gi"), [("a", "0", "64Gi"), ("b", "2", "48Gi")], 14, id="others have most memory"),
        pytest.param(("500m", "8Gi"), [("a", "16", "0"), ("b", "12", "0")], 8, id="others have most CPU"),
        pytest.param(("1", "0"), [("a", "0", "64Gi"), ("b", "0", "64Gi")], 32, id="no memory is asked for"),
        pytest.param(("1m", "2Gi"), [("a", "15", "0"), ("b", "15", "0")], 64, id="next to no CPU is asked for"),
    ],
)
def test_as_many_workers_are_counted_as_fit_whatever_others_take(
    asks: tuple[str, str], others: list[tuple[str, str, str]], fit: int
) -> None:
    nodes = [node("a", "16", "64Gi"), node("b", "16", "64Gi")]
    requests = {"cpu": asks[0], "memory": asks[1], "nvidia.com/gpu": "0"}
    found = poll([target()], [job(requests=requests)], nodes, [other(*each) for each in others])
    (one,) = found.state.jobs
    assert seats((each.capacity for each in found.state.nodes), one.worker_demand) == fit


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=1, max_size=4),
    st.tuples(st.integers(0, 16_000), st.integers(0, 16_000)),
    st.lists(st.integers(0, 3), max_size=40),
)
def test_what_is_counted_to_fit_on_a_node_has_cpu_and_memory_there(
    kinds: list[tuple[int, int]], taken: tuple[int, int], placed: list[int]
) -> None:
    jobs = [job(f"j{number}", requests={"cpu": f"{c}m", "memory": f"{m}Mi"}) for number, (c, m) in enumerate(kinds)]
    nodes = [node("a", "16", "16000Mi"), node("b", "4", "64000Mi")]
    found = poll(
        [pointing(f"j{number}") for number in range(len(kinds))],
        jobs,
        nodes,
        [other("a", f"{taken[0]}m", f"{taken[1]}Mi")],
    )
    demands = {each.job_id: each.worker_demand.cpu_milli for each in found.state.jobs}
    left, cpu, memory = found.state.nodes[0].capacity.cpu_milli, 16_000 - taken[0], 16_000 - taken[1]
    for each in placed:
        number = each % len(kinds)
        if demands[f"team/j{number}"] <= left:
            left -= demands[f"team/j{number}"]
            cpu, memory = cpu - kinds[number][0], memory - kinds[number][1]
    assert min(cpu, memory) >= 0


def test_room_has_grown_where_others_left_and_a_task_more_fits() -> None:
    ours, small, large = pod("uid-train"), other("a", "10m"), pod("somebody")
    nodes = [node_facts(node())]

    def grown(left: list[Json], asks: Json | None = None) -> bool:
        about = poll([target()], [job(requests=asks)], pods=[ours, small, large])
        kept = [pod_facts(each) for each in left]
        return about.free_capacity.has_grown(nodes, [each for each in kept if each is not None])

    assert not grown([ours, small, large])
    assert not grown([ours, small, large, pod("another")])
    # What its own pods have is decided about, and what a task does not fit into is nothing.
    assert not grown([small, large])
    assert not grown([ours, large])
    assert grown([ours, large], {"cpu": "10m"})
    assert grown([ours, small])


def test_nodes_that_its_pods_may_not_come_to_are_left_out() -> None:
    taints = [{"key": "gpu", "value": "x", "effect": "NoSchedule"}]
    nodes = [node("a"), node("b", taints=taints), node("c", unschedulable=True)]
    assert [each.node_id for each in poll([target()], [job()], nodes).state.nodes] == ["a"]
    tolerant = job()
    tolerant["spec"]["template"]["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    assert [each.node_id for each in poll([target()], [tolerant], nodes).state.nodes] == ["a", "b"]


def confined(name: str, **selector: str) -> Json:
    found = job(name, 0)
    found["spec"]["template"]["spec"]["nodeSelector"] = selector
    return found


def pointing(name: str, **spec: Any) -> Json:
    return target(name, targetRef={"apiVersion": "batch/v1", "kind": "Job", "name": name}, **spec)


def test_a_job_may_have_no_more_than_its_own_nodes_hold_though_others_have_room() -> None:
    nodes = [node("a", gpus=3), node("b", gpus=8)]
    nodes[0]["metadata"]["labels"] = {"pool": "small"}
    found = poll([pointing("train"), pointing("free")], [confined("train", pool="small"), job("free", 0)], nodes)
    most = {each.job_id: each.max_workers for each in found.state.jobs}
    assert (most, found.reach) == ({"team/train": 3, "team/free": 4}, {"team/train": frozenset("a")})
    assert [each.node_id for each in found.state.nodes] == ["a", "b"]
    # Less than its least is nothing; what it has already it keeps.
    found = poll([pointing("train", min=4), pointing("free")], [confined("train", pool="small"), job("free", 0)], nodes)
    (one,) = [each for each in found.state.jobs if each.job_id == "team/train"]
    assert (one.max_workers, one.requested.workers) == (0, 0)
    running = job("train", 4)
    running["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "none"}
    found = poll([pointing("train"), pointing("free")], [running, job("free", 0)], nodes)
    assert [each.max_workers for each in found.state.jobs if each.job_id == "team/train"] == [4]


def test_what_jobs_of_the_agent_s_own_have_is_taken_first_where_no_target_has_to_be() -> None:
    nodes = [node("a", gpus=2), node("b", gpus=4)]
    nodes[0]["metadata"]["labels"] = {"pool": "small"}
    found = poll([pointing("train"), pointing("free")], [confined("train", pool="small"), job("free", 0)], nodes)
    theirs = replace(found.state.jobs[0], job_id="team/own", current=Allocation(3, 0))
    both = replace(found, state=replace(found.state, jobs=(*found.state.jobs, theirs)))
    alone = targets_alone(both, Decision({"team/own": Allocation(3, 0)}))
    assert {each.node_id: each.capacity.gpu for each in alone.state.nodes} == {"a": 2, "b": 1}
    there = targets_alone(replace(both, reach={**both.reach, "team/own": frozenset("a")}), Decision({}))
    assert {each.node_id: each.capacity.gpu for each in there.state.nodes} == {"a": 0, "b": 3}
    assert there.reach == found.reach


class Own:
    """One job of the agent's own, with parameter servers."""

    def __init__(self, **selectors: str) -> None:
        self.by_role = {role: NodeChoice(selector=(("pool", pool),)) for role, pool in selectors.items()}

    def choices(self) -> dict[str, tuple[str, dict[str, NodeChoice]]]:
        return {"uid-own": ("team/trainingjob/own", self.by_role)}

    def observe(self, demand: Callable[[Amounts], Resources]) -> list[Job]:
        asks = demand({"cpu": 1000, "nvidia.com/gpu": 1})
        sizes = {"max_workers": 6, "max_ps": 6, "requested": Allocation(1, 1)}
        return [Job("team/trainingjob/own", "x", 0.0, asks, asks, 1.0, 1.0, 1.0, **sizes)]


def test_jobs_of_both_sorts_are_in_the_order_of_their_arrival() -> None:
    class Between(Own):
        def observe(self, demand: Callable[[Amounts], Resources]) -> list[Job]:
            return [replace(each, submit_time_seconds=arrivals["team/a"] + 1.0) for each in super().observe(demand)]

    jobs = [pointing("a"), pointing("b")], [job("a", 0), job("b", 0)], [node("n", gpus=8)]
    jobs[1][1]["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
    arrivals = {each.job_id: each.submit_time_seconds for each in poll(*jobs).state.jobs}
    assert arrivals["team/b"] != arrivals["team/a"]
    seen = [each.job_id for each in poll(*jobs, own=Between()).state.jobs]
    wanted = sorted([*arrivals.items(), ("team/trainingjob/own", arrivals["team/a"] + 1.0)], key=lambda each: each[1])
    assert seen == [name for name, _ in wanted]
    assert seen.index("team/trainingjob/own") == seen.index("team/a") + 1


def pooled(**gpus: int) -> list[Json]:
    found = [node(name, cpu="64", gpus=count) for name, count in gpus.items()]
    for each in found:
        each["metadata"]["labels"] = {"pool": each["metadata"]["name"]}
    return found


def test_each_role_of_the_agent_s_own_jobs_has_nodes_of_its_own() -> None:
    nodes, own = pooled(a=3, b=2, c=9), "team/trainingjob/own"
    found = poll([], [], nodes, own=Own(worker="a", ps="b", coordinator="b"))
    (one,) = found.state.jobs
    assert (one.max_workers, one.max_ps) == (3, 2)
    assert (found.reach, found.ps_reach) == ({own: frozenset("a")}, {own: frozenset("b")})
    assert {each.node_id for each in found.state.nodes} == {"a", "b"}, "nobody's pods may come to another"
    found = poll([], [], nodes, own=Own(worker="a", ps="b", coordinator="none"))
    (one,) = found.state.jobs
    assert (one.max_workers, one.max_ps) == (0, 0), "without a coordinator it cannot begin"


def test_what_each_role_of_own_jobs_has_is_taken_from_its_own_nodes() -> None:
    nodes = pooled(a=3, b=2, c=9)
    found = poll([target()], [job("train", 0)], nodes, own=Own(worker="a", ps="b", coordinator="b"))
    alone = targets_alone(found, Decision({"team/trainingjob/own": Allocation(2, 1)}))
    assert {each.node_id: each.capacity.gpu for each in alone.state.nodes} == {"a": 1, "b": 1, "c": 9}
    assert (alone.reach, alone.ps_reach) == ({}, {})


def test_a_job_with_a_pod_that_does_not_start_does_not_grow() -> None:
    waiting = pod("uid-train")
    state = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    waiting["status"] = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}
    found = poll([target()], [job()], pods=[pod("uid-train"), waiting])
    assert found.members["team/train"].trouble == "p: ErrImagePull: no such image"
    assert [(each.max_workers, each.min_workers) for each in found.state.jobs] == [(2, 1)]
    for harmless in ({"reason": "ContainerCreating"}, {}):
        waiting["status"]["containerStatuses"][0]["state"]["waiting"] = harmless
        assert poll([target()], [job()], pods=[waiting]).state.jobs[0].max_workers == 4
    waiting["status"]["containerStatuses"][0]["state"] = state
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert poll([target()], [job()], pods=[waiting]).state.jobs[0].max_workers == 4


def test_progress_is_what_annotations_say_where_they_make_sense() -> None:
    source = {"annotations": {"samples": "done", "total": "all"}}
    for said, samples, total in [
        ({"done": "500", "all": "2000"}, 500.0, 2000.0),
        ({"done": "500"}, 500.0, None),
        ({"done": "NaN", "all": "2000"}, None, None),
        ({"done": "-1"}, None, None),
        ({"done": "1e99"}, None, None),
        ({"done": "3000", "all": "2000"}, 3000.0, None),
    ]:
        annotated = job()
        annotated["metadata"]["annotations"] = said
        member = poll([target(progressFrom=source)], [annotated]).members["team/train"]
        assert (member.samples, member.total_samples) == (samples, total)


def test_a_job_may_have_64_workers() -> None:
    (found,) = poll([target(min=17, max=64)], [job()]).state.jobs
    assert (found.kind, found.min_workers, found.max_workers) == (JobKind.ALLREDUCE, 17, 64)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"max": 0}, "spec.max is 0: use 1 to 64"),
        ({"max": 65}, "spec.max is 65: use 1 to 64"),
        ({"max": 2, "min": 3}, "spec.max is 2, below spec.min, which is 3"),
        ({"max": "many"}, "spec.max is 'many': use 1 to 64"),
        ({"min": True}, "spec.min is True: use 1 to 64"),
        ({"updateMode": "Some"}, "spec.updateMode is 'Some': use Off, Auto"),
        ({"targetRef": None}, "spec.targetRef is missing"),
        ({"targetRef": {"kind": "Job", "name": "x"}}, "spec.targetRef.apiVersion is missing"),
        ({"progressFrom": {}}, "spec.progressFrom has to have annotations or metrics, one of them"),
        (
            {"progressFrom": {"metrics": {"port": 1, "samples": "x"}, "annotations": {"samples": "x"}}},
            "spec.progressFrom has to have annotations or metrics, one of them",
        ),
        (
            {"progressFrom": {"metrics": {"port": 9400}}},
            "spec.progressFrom.metrics.samples is None, total '': use names",
        ),
        (
            {"progressFrom": {"metrics": {"port": 0, "samples": "x"}}},
            "spec.progressFrom.metrics.port is 0: use 1 to 65535",
        ),
        (
            {"progressFrom": {"metrics": {"port": 1, "samples": "x", "path": "metrics x"}}},
            "spec.progressFrom.metrics.path is 'metrics x': use one such as /metrics",
        ),
        (
            {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}},
            "spec.targetRef is a Deployment of apps/v1: use batch/v1 Job",
        ),
        (
            {"targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "none"}},
            "there is no Job none in namespace team",
        ),
    ],
)
def test_a_target_that_cannot_be_used_is_left_out_with_a_line(spec: Json, line: str) -> None:
    found = poll([target(**spec), target("good")], [job()])
    assert found.left_out == {"team/train": line}
    assert list(found.members) == ["team/good"]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"completionMode": "NonIndexed"}, "it is no Indexed Job"),
        ({"completions": 9}, r"its parallelism \(2\) and completions \(9\) differ"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "kueue.x-k8s.io/multikueue manages it"),
        (
            {"template": {"spec": {"containers": [{}], "resourceClaims": [{"name": "gpu"}]}}},
            r"its pods claim devices \(resourceClaims\)",
        ),
        ({"template": {"spec": {"containers": [{}]}}}, "its pods request neither CPU nor GPUs"),
        (
            {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}},
            "the requests of its pods cannot be read",
        ),
    ],
)
def test_a_job_whose_size_means_nothing_is_left_out(spec: Json, line: str) -> None:
    found = poll([target()], [job(**spec)])
    assert list(found.members) == []
    with pytest.raises(ValueError, match=line):
        raise ValueError(found.left_out["team/train"])


def test_a_job_that_is_over_is_in_no_decision_and_takes_nothing() -> None:
    over = {**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert poll([target()], [over]).left_out == {"team/train": "Job train is over"}


def test_a_job_of_whose_end_nobody_was_told_is_in_one_more_decision_without_anything() -> None:
    over = {**job(), "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    found = poll([target()], [over], untold=frozenset({"uid-train"}))
    (one,) = found.state.jobs
    assert (one.current, one.requested, one.max_workers) == (SUSPENDED, SUSPENDED, 0)
    assert found.left_out == {"team/train": "Job train is over"}


def test_of_two_targets_of_one_job_the_older_counts() -> None:
    found = poll([target("late", created="2026-02-01T00:00:00Z"), target("early")], [job()])
    assert list(found.members) == ["team/early"]
    assert found.left_out == {"team/late": "ElasticTarget early points at Job train already"}


def test_of_what_an_earlier_life_decided_about_only_what_is_over_now_is_to_be_told() -> None:
    over = job_facts({**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    then = seconds_of("2026-01-01T00:00:00Z")
    where = ("Job", "team", "train")
    kept = [elastic_target(target()), elastic_target(target("missing", targetRef={}))]
    assert ended_since(frozenset({("team/train", then)}), kept, {where: over}) == {"uid-train"}
    assert ended_since(frozenset({("team/train", then + 1)}), kept, {where: over}) == frozenset(), "made again"
    assert ended_since(frozenset({("team/other", then)}), kept, {where: over}) == frozenset()
    assert ended_since(frozenset({("team/train", then)}), kept, {where: job_facts(job())}) == frozenset()
