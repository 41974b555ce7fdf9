"""The chart's admission policies refuse, when a TrainingJob is written, exactly what the agent would refuse of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from apiserver.writing.expressions import parsed
from rendered import by_helm, of_kind

from cluster_agent.backend_settings import KubernetesTraining
from cluster_agent.kubernetes.training.pod_rights import Rights
from cluster_agent.kubernetes.training.training_job import training_job

Json = dict[str, Any]
RIGHTS: Json = {
    "team": {"service_accounts": ["trainer"], "host_access": ["hostNetwork", "privileged"]},
    "lab": {"host_access": ["hostPath", "hostPort", "nodeName"], "priority_classes": ["batch"]},
    "*": {"host_access": ["hostIPC"]},
}
PODS: list[Json] = [
    {},
    *({name: value} for name in ("hostNetwork", "hostPID", "hostIPC") for value in (True, False)),
    {"nodeName": "n"},
    {"serviceAccountName": "default"},
    {"serviceAccountName": "trainer"},
    {"serviceAccount": "other"},
    {"priorityClassName": "batch"},
    {"priorityClassName": "system-node-critical"},
    {"priority": 7},
    {"volumes": [{"name": "a", "emptyDir": {}}]},
    {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]},
    {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}},
    {"securityContext": {"sysctls": [{"name": "x", "value": "1"}]}},
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
    {"securityContext": {"seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"}}},
]
CONTAINERS: list[Json] = [
    {"ports": [{"containerPort": 1}]},
    {"ports": [{"containerPort": 1, "hostPort": 1}]},
    {"securityContext": {"privileged": True}},
    {"securityContext": {"privileged": False, "capabilities": {"drop": ["ALL"]}}},
    {"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE", "CAP_CHOWN"]}}},
    {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
    {"securityContext": {"procMount": "Unmasked"}},
    {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    {"securityContext": {"seLinuxOptions": {"user": "system_u"}}},
]


def templates() -> list[Json]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    made = [{"containers": [container], **pod} for pod in PODS]
    made += [{"containers": [{**container, **each}]} for each in CONTAINERS]
    made += [{"containers": [container], "initContainers": [{"name": "i", **each}]} for each in CONTAINERS]
    return [{"spec": spec} for spec in made]


def refuses(policy: Json, found: Json, before: Json | None = None) -> bool:
    """Whether a policy is against a job, by its expressions as they were rendered."""
    scope: Json = {"object": found, "oldObject": before, "variables": {}}
    scope["request"] = {"operation": "CREATE" if before is None else "UPDATE"}
    spec = policy["spec"]
    if not all(parsed(each["expression"])(scope) for each in spec["matchConditions"]):
        return False
    for each in spec.get("variables", ()):
        scope["variables"][each["name"]] = parsed(each["expression"])(scope)
    return not all(parsed(each["expression"])(scope) is True for each in spec["validations"])


def rendered(training: Json) -> tuple[Json, Json]:
    """Of namespaces, and of templates; each with its actions."""
    values = {"mode": "training", "settings": {"backend": {"training": training}}}
    objects = by_helm(values, namespace="fedl2")
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    bindings = {each["spec"]["policyName"]: each for each in of_kind(objects, "ValidatingAdmissionPolicyBinding")}
    by_end = {found["metadata"]["name"].rpartition("-")[2]: found for found in policies}
    assert {found["metadata"]["name"] for found in policies} == set(bindings)
    for found in policies:
        found["actions"] = bindings[found["metadata"]["name"]]["spec"]["validationActions"]
    return by_end["namespaces"], by_end["rights"]


def job(namespace: str, role: str, template: Json) -> Json:
    bounds = {"min": 1, "max": 2}
    ordinary = {**bounds, "template": templates()[0]}
    spec: Json = {"modelType": "m", "worker": ordinary, "ps": bounds}
    spec[role] = {"template": template} if role == "coordinator" else {**bounds, "template": template}
    return {"metadata": {"name": "a", "namespace": namespace, "uid": "u"}, "spec": spec}


@pytest.mark.heavy
def test_policies_and_the_agent_refuse_the_same() -> None:
    training = {"rights": RIGHTS, "refuse_unlisted": True}
    of_namespaces, of_templates = rendered(training)
    settings = KubernetesTraining.model_validate(training)
    agents = Rights(settings.rights, {"fedl2"}, settings.refuse_unlisted)
    verdicts = set()
    for namespace, role in itertools.product(("team", "lab", "other"), ("worker", "ps", "coordinator")):
        for template in templates():
            found = job(namespace, role, template)
            refused = bool(agents.judged(training_job(found)).problem)
            assert refuses(of_templates, found) == refused, (namespace, role, template)
            assert not refuses(of_namespaces, found)
            verdicts.add(refused)
    assert verdicts == {True, False}
    for namespace in ("fedl2", "kube-system", "kube-public", "kube-node-lease"):
        assert refuses(of_namespaces, job(namespace, "worker", templates()[0]))


def test_a_job_that_is_there_keeps_its_finalizers_and_changes_nothing_else() -> None:
    _, of_templates = rendered({})
    found = job("team", "worker", {"spec": {**templates()[0]["spec"], "hostNetwork": True}})
    assert refuses(of_templates, found)
    assert not refuses(of_templates, {**found, "metadata": {**found["metadata"], "finalizers": ["x"]}}, before=found)
    other = {**found, "spec": {**found["spec"], "modelType": "n"}}
    assert refuses(of_templates, other, before=found)


@pytest.mark.parametrize(("training", "actions"), [({}, ["Warn", "Audit"]), ({"refuse_unlisted": True}, ["Deny"])])
def test_what_is_not_listed_is_a_warning_until_it_is_refused(training: Json, actions: list[str]) -> None:
    of_namespaces, of_templates = rendered(training)
    assert (of_namespaces["actions"], of_templates["actions"]) == (["Deny"], actions)


def test_there_are_none_where_no_training_jobs_run_or_nobody_wants_them() -> None:
    for values in ({"mode": "auto"}, {"mode": "training", "training": {"admissionPolicy": False}}):
        assert not of_kind(by_helm(values), "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
