"""What templates ask for beyond an ordinary pod is refused, or said, unless it is listed for their namespace."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_objects import all_reduce_spec, job_object, spec, template

from cluster_agent.backend_settings import HostAccessWord, TemplateRights
from cluster_agent.kubernetes.training.pod_rights import (
    EVERY_NAMESPACE,
    NO_RIGHTS,
    Rights,
)
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job

Json = dict[str, Any]
ENFORCED = Rights({}, enforced=True)
ROLES = ("worker", "ps", "coordinator")


def job_with(
    role: str, pod: Json | None = None, container: Json | None = None, group: str = "containers"
) -> TrainingJob:
    made = template(**(pod or {}))
    if group == "containers":
        made["spec"]["containers"][0] |= container or {}
    else:
        made["spec"][group] = [{"name": "more", "image": "x", **(container or {})}]
    least = {"min": 1, "max": 2} if role != "coordinator" else {}
    return training_job({**job_object(), "spec": spec(**{role: {**least, "template": made}})})


POD_FIELDS = [
    ({"hostNetwork": True}, "hostNetwork"),
    ({"hostPID": True}, "hostPID"),
    ({"hostIPC": True}, "hostIPC"),
    ({"nodeName": "node-1"}, "nodeName"),
    ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]}, "hostPath"),
    ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "privileged"),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "privileged"),
    ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "privileged"),
]
CONTAINER_FIELDS = [
    ({"securityContext": {"privileged": True}}, "privileged"),
    ({"securityContext": {"capabilities": {"add": ["NET_RAW", "CAP_SYS_ADMIN"]}}}, "privileged"),
    ({"securityContext": {"capabilities": {"add": ["all"]}}}, "privileged"),
    ({"securityContext": {"procMount": "Unmasked"}}, "privileged"),
    ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "privileged"),
    ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "privileged"),
    ({"securityContext": {"seLinuxOptions": {"role": "system_r"}}}, "privileged"),
    ({"ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 2}]}, "hostPort"),
]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("pod", "kind"), POD_FIELDS)
def test_what_a_pod_asks_of_its_node_is_refused_unless_it_is_listed(role: str, pod: Json, kind: str) -> None:
    job = job_with(role, pod)
    assert not job.problem
    refused = ENFORCED.judged(job)
    assert f"spec.{role}.template.spec." in refused.problem
    assert "backend.training.rights" in refused.problem
    lists = Rights({"team": TemplateRights(host_access=(kind,))}, enforced=True)
    assert lists.judged(job) == job
    elsewhere = Rights({"other": TemplateRights(host_access=get_args(HostAccessWord))}, enforced=True)
    assert elsewhere.judged(job).problem


@pytest.mark.parametrize("group", ["containers", "initContainers", "ephemeralContainers"])
@pytest.mark.parametrize(("container", "kind"), CONTAINER_FIELDS)
def test_what_any_container_asks_of_its_node_is_refused_unless_it_is_listed(
    group: str, container: Json, kind: str
) -> None:
    job = job_with("worker", container=container, group=group)
    assert f"spec.worker.template.spec.{group}[0]." in ENFORCED.judged(job).problem
    everywhere = Rights({EVERY_NAMESPACE: TemplateRights(host_access=(kind,))}, enforced=True)
    assert everywhere.judged(job) == job


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_service_accounts_are_listed_by_name_and_default_is_ordinary(field: str) -> None:
    assert ENFORCED.judged(job_with("worker", {field: "default"})).problem == ""
    job = job_with("ps", {field: "trainer"})
    assert f"spec.ps.template.spec.{field} trainer" in ENFORCED.judged(job).problem
    listed = Rights({"team": TemplateRights(service_accounts=("trainer",))}, enforced=True)
    assert listed.judged(job) == job
    assert listed.judged(job_with("ps", {field: "trainer-admin"})).problem


def test_priorities_are_listed_by_their_class_and_a_bare_number_never_is() -> None:
    job = job_with("worker", {"priorityClassName": "system-node-critical"})
    assert "priorityClassName system-node-critical" in ENFORCED.judged(job).problem
    listed = Rights({"team": TemplateRights(priority_classes=("batch",))}, enforced=True)
    assert listed.judged(job).problem
    assert not listed.judged(job_with("worker", {"priorityClassName": "batch"})).problem
    assert "priority" in listed.judged(job_with("worker", {"priority": 2_000_000_000})).problem


def test_ordinary_jobs_of_both_kinds_are_taken_as_they_are() -> None:
    ordinary = {"securityContext": {"runAsNonRoot": True}, "tolerations": [{"operator": "Exists"}]}
    drops = {"securityContext": {"privileged": False, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}
    for job in (job_with("worker", ordinary, drops), training_job({**job_object(), "spec": all_reduce_spec()})):
        assert ENFORCED.judged(job) == job


def test_until_it_is_enforced_a_job_only_says_what_would_be_refused() -> None:
    found = NO_RIGHTS.judged(job_with("worker", {"hostNetwork": True}))
    assert not found.problem
    assert found.unlisted.startswith("spec.worker.template.spec.hostNetwork: more than backend.training.rights")
    assert "the next release refuses it" in found.unlisted


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "fedl2"])
def test_there_are_no_jobs_where_the_agent_and_the_system_run(namespace: str) -> None:
    found = job_object()
    found["metadata"]["namespace"] = namespace
    assert "use another namespace" in Rights({}, ("fedl2", "")).judged(training_job(found)).problem
    assert not Rights({}, ("fedl2", "")).judged(training_job(job_object())).problem


def test_every_word_of_the_settings_is_something_that_a_template_may_ask_for() -> None:
    assert {kind for _, kind in (*POD_FIELDS, *CONTAINER_FIELDS)} == set(get_args(HostAccessWord))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["volumes", "securityContext", "initContainers", "serviceAccountName"]), ANYTHING),
    st.dictionaries(st.sampled_from(["ports", "securityContext"]), ANYTHING),
)
def test_templates_keep_whatever_was_written_and_are_judged_all_the_same(pod: Json, container: Json) -> None:
    judged = ENFORCED.judged(job_with("worker", pod, container))
    assert judged.problem == judged.unlisted or not judged.unlisted
