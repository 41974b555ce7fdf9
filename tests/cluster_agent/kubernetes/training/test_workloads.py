"""Workloads as they are asked for, and as Kueue answers: what is read of conditions, and what pods carry of flavors."""

from __future__ import annotations

from typing import Any

import pytest
from training_objects import job, template

from cluster_agent.kubernetes.training.workloads import (
    KueueWorkload,
    WorkloadState,
    counted,
    ended,
    given_back,
    placement,
    workload_facts,
    workload_of,
)
from policy_net.domain import Allocation

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
EARLIER = "2025-12-31T00:00:00Z"
JOB = job(kueue={"queueName": "research"})


def found(spec: Json | None = None, **conditions: bool) -> Json:
    body = workload_of(JOB, 3, Allocation(2, 1), None)
    body["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    body["spec"] |= spec or {}
    listed = [
        {"type": name, "status": str(holds), "message": f"{name} said", "lastTransitionTime": EARLIER}
        for name, holds in conditions.items()
    ]
    return {**body, "status": {"conditions": listed}}


def facts(body: Json) -> KueueWorkload:
    kept = workload_facts(body)
    assert kept is not None
    return kept


@pytest.mark.parametrize(
    ("conditions", "spec", "state", "line"),
    [
        ({}, {}, WorkloadState.PENDING, "Kueue has not looked at it yet"),
        ({"QuotaReserved": False}, {}, WorkloadState.PENDING, "QuotaReserved said"),
        ({"QuotaReserved": True}, {}, WorkloadState.RESERVED, "its admission checks are not done"),
        ({"QuotaReserved": True, "Admitted": False}, {}, WorkloadState.RESERVED, "Admitted said"),
        ({"QuotaReserved": True, "Admitted": True}, {}, WorkloadState.ADMITTED, "Admitted said"),
        ({"QuotaReserved": True, "Admitted": True, "Evicted": False}, {}, WorkloadState.ADMITTED, "Admitted said"),
        ({"QuotaReserved": True, "Admitted": True, "Evicted": True}, {}, WorkloadState.EVICTED, "Evicted said"),
        ({"QuotaReserved": False, "Evicted": True}, {}, WorkloadState.PENDING, "QuotaReserved said"),
        (
            {"QuotaReserved": True, "Admitted": True},
            {"active": False},
            WorkloadState.EVICTED,
            "its Workload was deactivated",
        ),
        ({}, {"active": False}, WorkloadState.PENDING, "its Workload was deactivated"),
        ({"QuotaReserved": True, "Admitted": True, "Finished": True}, {}, WorkloadState.FINISHED, "Finished said"),
    ],
)
def test_where_it_is_follows_from_its_conditions(
    conditions: dict[str, bool], spec: Json, state: WorkloadState, line: str
) -> None:
    kept = facts(found(spec, **conditions))
    assert kept.state is state
    assert kept.line.startswith(line)


def test_what_is_asked_for_can_be_read_back() -> None:
    first = facts(found())
    assert (first.owner, first.number, first.size, first.replaces) == (JOB.uid, 3, Allocation(2, 1), "")
    body = workload_of(JOB, 4, Allocation(4, 2), first)
    assert body["spec"]["queueName"] == "research"
    assert body["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] == f"team/{first.name}"
    body["metadata"] |= {"uid": "v", "resourceVersion": "8"}
    assert (facts(body).size, facts(body).replaces) == (Allocation(4, 2), first.name)


def test_of_others_nothing_is_kept() -> None:
    body = found()
    del body["metadata"]["ownerReferences"]
    assert workload_facts(body) is None
    body = found()
    body["metadata"]["name"] = "by-hand"
    assert facts(body).number == -1


def test_it_asks_for_what_pods_take_and_shows_nothing_else_of_them() -> None:
    secret = template(["python", "--password=hush"], tolerations=[{"operator": "Exists"}])
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hush"}]
    secret["spec"]["initContainers"] = [{**secret["spec"]["containers"][0], "name": "first", "restartPolicy": "Always"}]
    worker = {"min": 1, "max": 2, "template": secret}
    asked = workload_of(job(kueue={"queueName": "q"}, worker=worker), 0, Allocation(1, 1), None)
    assert "hush" not in str(asked)
    pod_set = next(each for each in asked["spec"]["podSets"] if each["name"] == "worker")
    assert pod_set["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod_set["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "256Mi"}


def test_other_counts_leave_the_coordinator_alone_and_conflict_with_other_changes() -> None:
    patch = counted(facts(found()), Allocation(4, 2))
    assert patch == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/podSets/1/count", "value": 2},
        {"op": "replace", "path": "/spec/podSets/2/count", "value": 4},
    ]


def test_quota_is_given_back_and_who_was_preempted_waits_again_at_once() -> None:
    body = found(QuotaReserved=True, Admitted=True, Evicted=True, PodsReady=True)
    for reason, at_once in (("Preempted", "True"), ("PodsReadyTimeout", "False"), (None, "False")):
        body["status"]["conditions"][2]["reason"] = reason
        status = given_back(body["status"], NOW, 2)
        left = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in status["conditions"]}
        assert status["admission"] is None
        assert left == {
            "Evicted": ("True", EARLIER),
            "QuotaReserved": ("False", NOW),
            "Admitted": ("False", NOW),
            "Requeued": (at_once, NOW),
            "PodsReady": ("False", NOW),
        }
        assert facts({**body, "status": {**body["status"], **status}}).state is WorkloadState.PENDING


def test_a_finished_one_keeps_what_was_said_of_it() -> None:
    for outcome, reason in (("Complete", "Succeeded"), ("Failed", "Failed"), ("", "WorkloadSliceReplaced")):
        status = ended(found(QuotaReserved=True)["status"], outcome, NOW, 1)
        assert [each["type"] for each in status["conditions"]] == ["QuotaReserved", "Finished"]
        assert status["conditions"][-1]["reason"] == reason


def test_pods_go_where_their_quota_is() -> None:
    flavor = {"spec": {"nodeLabels": {"pool": "a"}, "tolerations": [{"key": "a"}]}}
    update = {"name": "worker", "labels": {"l": "1"}, "annotations": {"n": "2"}, "nodeSelector": {"zone": "z"}}
    there = placement([flavor, {}], [update])
    spec = {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "a"}]}
    pod: Json = {"metadata": {"labels": {"x": "y"}}, "spec": spec}
    there.put_into(pod)
    assert pod["metadata"] == {"labels": {"x": "y", "l": "1"}, "annotations": {"n": "2"}}
    assert pod["spec"] == {"nodeSelector": {"pool": "a", "zone": "z"}, "tolerations": [{"key": "a"}]}
    with pytest.raises(ValueError, match="nodeSelector pool is b, and Kueue's admission has a"):
        there.put_into({"metadata": {}, "spec": {"nodeSelector": {"pool": "b"}}})


def test_updates_count_once_their_check_is_ready() -> None:
    body = found(QuotaReserved=True, Admitted=True)
    update = {"name": "worker", "nodeSelector": {"made": "for-it"}}
    body["status"]["admissionChecks"] = [{"name": "p", "state": "Pending", "podSetUpdates": [update]}]
    assert facts(body).updates == {}
    body["status"]["admissionChecks"][0]["state"] = "Ready"
    assert facts(body).updates == {"worker": (update,)}


@pytest.mark.parametrize("kueue", [{}, {"queueName": ""}, {"queueName": 5}, []])
def test_a_queue_without_a_name_is_told(kueue: object) -> None:
    assert "kueue" in job(kueue=kueue).problem or "CRD" in job(kueue=kueue).problem
