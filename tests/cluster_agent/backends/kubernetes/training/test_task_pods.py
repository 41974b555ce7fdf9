"""What is kept of a pod: how its process ended, whatever else ended around it, and why it does not start."""

from __future__ import annotations

from typing import Any

import pytest
from training_objects import job

from cluster_agent.backends.kubernetes.training.task_pods import KILLED, TaskPod, task_pod_facts
from cluster_agent.kubernetes.training import manifests

Json = dict[str, Any]


def facts(status: Json, **metadata: Any) -> TaskPod:
    pod = manifests.task_pod(job(), "worker-0", "10.0.0.1:7770")
    pod["spec"]["containers"].append({"name": "sidecar"})
    found = task_pod_facts({**pod, "metadata": {**pod["metadata"], "uid": "u", **metadata}, "status": status})
    assert found is not None
    return found


def ended(code: Any, name: str = "main", **more: Any) -> Json:
    return {"name": name, "state": {"terminated": {"exitCode": code, **more}}}


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"phase": "Succeeded", "containerStatuses": [ended(0)]}, 0, ""),
        ({"phase": "Failed", "containerStatuses": [ended(3, message="a\nValueError: b\n")]}, 3, "ValueError: b"),
        ({"phase": "Failed", "containerStatuses": [ended(137, reason="OOMKilled")]}, -9, "OOMKilled"),
        ({"phase": "Failed", "containerStatuses": [ended(1, "sidecar"), ended(0)]}, 0, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, KILLED, "low on memory"),
        ({"phase": "Failed", "reason": "NodeLost", "containerStatuses": None}, KILLED, "NodeLost"),
        ({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {}}]}, KILLED, ""),
        ({"phase": "Running", "containerStatuses": [ended(1, "sidecar")]}, 0, ""),
    ],
)
def test_how_the_first_container_ended(status: Json, code: int, words: str) -> None:
    found = facts(status)
    assert (found.exit_code, found.last_words) == (code, words)
    assert found.ended == (status["phase"] != "Running")


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x"}}}]},
            "ImagePullBackOff: no x",
        ),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "ErrImagePull"),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]},
            "Unschedulable: 0/3",
        ),
    ],
)
def test_why_a_pod_does_not_start(status: Json, trouble: str) -> None:
    assert facts({"phase": "Pending", **status}).trouble == trouble


def test_pods_of_others_are_none() -> None:
    pod = manifests.task_pod(job(), "worker-0", "10.0.0.1:7770")
    assert task_pod_facts({**pod, "metadata": {**pod["metadata"], "ownerReferences": []}}) is None
    assert task_pod_facts({**pod, "metadata": {**pod["metadata"], "labels": {}}}) is None
    assert facts({}, deletionTimestamp="now").deleting


def test_a_rank_says_of_which_gang_it_is_and_labels_that_were_changed_say_nothing() -> None:
    found = facts({}, labels={**manifests.labels(job(), "worker-0"), "fedl2.io/gang": "7", "fedl2.io/world-size": "3"})
    assert (found.gang, found.world) == (7, 3)
    for bad in ("", "-1", "x", "9" * 40, "٣"):
        labels = {**manifests.labels(job(), "worker-0"), "fedl2.io/gang": bad, "fedl2.io/world-size": bad}
        found = facts({}, labels=labels)
        assert (found.gang, found.world) == (0, 0)


def test_an_eviction_is_no_failure_of_what_ran() -> None:
    target = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
    assert facts({"phase": "Failed", "containerStatuses": [ended(137)], **target}).disrupted
    assert facts({"phase": "Failed", "reason": "Evicted"}).disrupted
    own = facts({"phase": "Failed", "containerStatuses": [ended(137, finishedAt="2026-01-01T00:00:00Z")]})
    assert (own.disrupted, own.ended_at) == (False, "2026-01-01T00:00:00Z")
