"""Nodes that tasks of a TrainingJob may come to, by the template of each role and by what its pods get besides."""

from __future__ import annotations

import pytest
from training_objects import all_reduce_spec, job, job_object, template

from cluster_agent.backends.kubernetes.training.free_capacity import PodNeed, choices_of, needs_of, task_requests
from cluster_agent.kubernetes.capacity import NodeFacts, Taint
from cluster_agent.kubernetes.resources import Json
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from policy_net.domain import Allocation

TAINTED = NodeFacts("gpus", (), (Taint("gpu", "", "NoSchedule"),), False, "", (("pool", "gpus"),))
PLAIN = NodeFacts("plain", (), (), False, "", (("pool", "plain"),))
TOLERATIONS = [{"key": "gpu", "operator": "Exists"}]


def on(pool: str) -> Json:
    """Required affinity to a pool."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def nodes_of(found: TrainingJob) -> dict[str, list[str]]:
    return {
        role: [node.name for node in (TAINTED, PLAIN) if choice.allows(node)]
        for role, choice in choices_of(found).items()
    }


def test_each_role_chooses_by_its_own_template() -> None:
    found = job(
        worker={"min": 1, "max": 4, "template": template(tolerations=TOLERATIONS, nodeSelector={"pool": "gpus"})},
        ps={"min": 1, "max": 2, "template": template(affinity=on("plain"))},
        coordinator={"template": template(tolerations=TOLERATIONS)},
    )
    assert nodes_of(found) == {"worker": ["gpus"], "ps": ["plain"], "coordinator": ["gpus", "plain"]}


def test_who_has_no_template_goes_where_its_pods_are_made_to() -> None:
    """They have the workers' tolerations and selector, and not their affinity."""
    worker = {"min": 1, "max": 4, "template": template(tolerations=TOLERATIONS, affinity=on("gpus"))}
    found = job(worker=worker)
    assert nodes_of(found) == {"worker": ["gpus"], "ps": ["gpus", "plain"], "coordinator": ["gpus", "plain"]}
    pods = {
        "worker": manifests.task_pod(found, "worker-0", "x:1"),
        "ps": manifests.task_pod(found, "ps-0", "x:1"),
        "coordinator": manifests.coordinator_pod(found, Allocation(1, 1), relaunched=False),
    }
    for role, pod in pods.items():
        assert choices_of(found)[role] == choices_of_pod(pod), role


def choices_of_pod(pod: Json) -> object:
    return choices_of(job(worker={"min": 1, "max": 1, "template": {"spec": pod["spec"]}}))["worker"]


def test_an_all_reduce_job_has_workers_only() -> None:
    body = job_object() | {"spec": all_reduce_spec()}
    assert list(choices_of(training_job(body))) == ["worker"]


def test_a_job_that_cannot_be_used_confines_nothing() -> None:
    broken = job(worker={"min": 1, "max": 4, "template": {}})
    assert broken.problem
    assert nodes_of(broken) == {"worker": ["plain"], "ps": ["plain"], "coordinator": ["plain"]}


def test_what_an_admission_adds_counts_and_what_contradicts_it_is_told_where_the_pod_is_made() -> None:
    found = job(ps={"min": 1, "max": 2, "template": template(nodeSelector={"pool": "plain"})})

    def fit(role: str, pod: Json) -> None:
        if role == "ps":
            raise ValueError("nodeSelector pool is plain, and Kueue's admission has gpus")
        pod["spec"] |= {"nodeSelector": {"pool": "gpus"}, "tolerations": TOLERATIONS}

    choices = choices_of(found, fit)
    assert [choices["worker"].allows(each) for each in (TAINTED, PLAIN)] == [True, False]
    assert [choices["ps"].allows(each) for each in (TAINTED, PLAIN)] == [False, True]
    assert "nodeSelector" not in found.worker.template["spec"], "a template stays as it is"


@pytest.mark.parametrize("task", ["coordinator", "ps-0", "ps", "worker-3", "worker"])
def test_a_task_needs_what_its_role_does(task: str) -> None:
    found = job(
        worker={"min": 1, "max": 4, "template": template(nodeSelector={"pool": "gpus"})},
        coordinator={"template": template(nodeSelector={"pool": "plain"})},
    )
    choices = choices_of(found)
    (need,) = needs_of(found, [task], choices)
    assert need == PodNeed(task_requests(found, task), choices[task.partition("-")[0]])


def test_a_coordinator_takes_what_its_template_asks_for() -> None:
    assert task_requests(job(), "coordinator") == {"cpu": 100, "memory": 256 << 20, "pods": 1}
    found = job(coordinator={"template": template()})
    assert task_requests(found, "coordinator") == {"cpu": 500, "memory": 256 << 20, "pods": 1}
