"""Values of the chart, one row each: all that differs in the render when one is set, and nothing else does."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from rendered import CERTIFIED, ENROLLED, LEARNER, SHARING, by_helm

Json = dict[str, Any]
Leaves = dict[str, Any]
DIGEST = f"sha256:{'5' * 64}"
TAINTED = [{"key": "pool", "operator": "Exists"}]
VOLUME = {"name": "policies", "configMap": {"name": "policies"}}
MOUNT = {"name": "policies", "mountPath": "/policies"}
PASSWORD = {"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
BESIDE: Json = {"learner": LEARNER}
VOLUME_OF_ALL = "PersistentVolumeClaim/fedl2-learners"
AGENT, ALONE, TOGETHER = "Deployment/fedl2-agent", "StatefulSet/fedl2-learner", "StatefulSet/fedl2-learners"
POD = "spec.template.spec"
AGENT_RULES, LEARNER_RULES = "NetworkPolicy/fedl2-agent spec.egress", "NetworkPolicy/fedl2-learner spec.egress"
SETTINGS, LEARNER_SETTINGS = "ConfigMap/fedl2-settings agent.yaml", "ConfigMap/fedl2-learner-settings learner.yaml"
DNS, API = ["53", "53"], ["443", "6443"]
KEPT = "volumeClaimTemplates"


def leaves(found: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Values of an object by their paths; items of lists by their names where they have some."""
    if isinstance(found, dict) and found:
        for name, value in found.items():
            yield from leaves(value, f"{path}.{name}" if path else name)
    elif isinstance(found, list) and found and all(isinstance(each, dict) and "name" in each for each in found):
        for each in found:
            yield from leaves({key: value for key, value in each.items() if key != "name"}, f"{path}.{each['name']}")
    else:
        yield path, found


def flat(values: Json) -> Leaves:
    """All of a render: settings as they are read, rules of NetworkPolicies by their ports."""
    result: Leaves = {}
    for found in by_helm(values):
        where = f"{found['kind']}/{found['metadata']['name']}"
        for name in ("agent.yaml", "learner.yaml"):
            if name in found.get("data", {}):
                result |= {
                    f"{where} {name}.{at}": value for at, value in leaves(yaml.safe_load(found["data"].pop(name)))
                }
        if found["kind"] == "NetworkPolicy":
            for way in {"ingress", "egress"} & found["spec"].keys():
                rules = found["spec"][way]
                found["spec"][way] = [[str(port["port"]) for port in rule["ports"]] for rule in rules]
        result |= {f"{where} {at}": value for at, value in leaves(found)}
    return result


def row(name: str, base: Json, values: Json, *differs: str, to: Leaves | None = None) -> Any:
    """A base, what is set over it, and what then differs: an object's name, or a path, stands for all of it.

    Args:
        to: what else differs, by its path: the value that it has then, None if it is gone.
    """
    return pytest.param(base, values, set(differs), to or {}, id=name)


def learner(**settings: Any) -> Json:
    return {"learner": {**LEARNER, "settings": settings}}


def images() -> Iterator[Any]:
    image = f"{AGENT} {POD}.containers.agent.image"
    yield row("digest", {}, {"image": {"digest": DIGEST}}, to={image: f"fedl2-agent@{DIGEST}"})
    tagged = {"image": {"digest": DIGEST, "tag": "1"}}
    yield row("digest and tag", {}, tagged, to={image: f"fedl2-agent:1@{DIGEST}"})
    image = f"{ALONE} {POD}.containers.learner.image"
    pinned = {"learner": {**LEARNER, "image": {"digest": DIGEST}}}
    yield row("digest of the learner", BESIDE, pinned, to={image: f"fedl2-learner@{DIGEST}"})


def pods() -> Iterator[Any]:
    for number in (None, 7):
        fields = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), number)
        at = [f"{workload} {POD}.securityContext.{name}" for workload in (AGENT, ALONE) for name in fields]
        yield row(f"user {number}", BESIDE, {"podSecurityContext": fields}, to=dict.fromkeys(at, number))
    terms = "requiredDuringSchedulingIgnoredDuringExecution"
    placed = {"nodeSelector": {"pool": "system"}, "tolerations": TAINTED, "priorityClassName": "high"}
    placed |= {"affinity": {"nodeAffinity": {terms: {"nodeSelectorTerms": []}}}, "podAnnotations": {"a/b": "c"}}
    more: Json = {"extraEnv": [PASSWORD], "extraVolumes": [VOLUME], "extraVolumeMounts": [MOUNT]}
    for workload, container in ((AGENT, "agent"), (ALONE, "learner")):
        where = {
            f"{workload} {POD}.nodeSelector.pool": "system",
            f"{workload} {POD}.tolerations": TAINTED,
            f"{workload} {POD}.affinity.nodeAffinity.{terms}.nodeSelectorTerms": [],
            f"{workload} {POD}.priorityClassName": "high",
            f"{workload} spec.template.metadata.annotations.a/b": "c",
        }
        added = {
            f"{workload} {POD}.containers.{container}.env.PGPASSWORD.valueFrom.secretKeyRef.key": "password",
            f"{workload} {POD}.containers.{container}.env.PGPASSWORD.valueFrom.secretKeyRef.name": "db",
            f"{workload} {POD}.containers.{container}.volumeMounts.policies.mountPath": "/policies",
            f"{workload} {POD}.volumes.policies.configMap.name": "policies",
        }
        for name, values, to in (("where", placed, where), ("with more", more, added)):
            of_learner = {"learner": {**LEARNER, **values}}
            yield row(f"{name}: {container}", BESIDE, values if container == "agent" else of_learner, to=to)


def agents() -> Iterator[Any]:
    strategy = {"spec.replicas": 1, "spec.strategy.rollingUpdate.maxSurge": 0}
    strategy |= {"spec.strategy.rollingUpdate.maxUnavailable": 1}
    yield row("one agent", {}, {"replicas": 1}, to={f"{AGENT} {at}": value for at, value in strategy.items()})
    yield row("kept state", {}, {"state": {"size": "5Gi"}}, AGENT, "StatefulSet/fedl2-agent")
    ports: Leaves = {
        f"{ALONE} {POD}.containers.learner.ports.enroll.containerPort": 9000,
        "Service/fedl2-learner spec.ports.enroll.port": 9000,
        f"{LEARNER_SETTINGS}.identity.enroll_port": 9000,
        AGENT_RULES: [DNS, API, ["7070", "9000"]],
    }
    enrolled: Json = {"fleet": ENROLLED, "replicas": 1, "state": {"size": "5Gi"}, "learner": LEARNER}
    yield row("another port to enroll", enrolled, learner(identity={"enroll_port": 9000}), to=ports)
    nowhere = f"{ALONE} {POD}.containers.learner.ports.enroll"
    gone = (nowhere, "Service/fedl2-learner spec.ports.enroll")
    told = {"NetworkPolicy/fedl2-learner spec.ingress": [["service"], ["metrics"]]}
    told |= {f"{LEARNER_SETTINGS}.identity.enroll_port": None}
    yield row("nowhere to enroll", BESIDE, learner(identity={"enroll_port": None}), *gone, to=told)
    certified: Json = {"fleet": CERTIFIED, "replicas": 1}
    further = {"fleet": {**CERTIFIED, "furtherAddresses": ["learner-b.example.org:7170"]}}
    told = {AGENT_RULES: [DNS, API, ["7070", "7170"]]}
    told |= {f"{SETTINGS}.learner.further_addresses": ["learner-b.example.org:7170"]}
    yield row("a further learner", certified, further, to=told)
    shadow = {"settings": {"learner": {"rollouts": "shadow-only"}}}
    yield row("how an agent follows", certified, shadow, to={f"{SETTINGS}.learner.rollouts": "shadow-only"})
    at = f"{AGENT} {POD}"
    gone = (f"{at}.initContainers.training-key", f"{at}.volumes.training")
    roles = ("Role/fedl2-training-key", "RoleBinding/fedl2-training-key")
    mine = {"training": {"keySecret": {"name": "mine"}}}
    yield row("a key of one's own", {"mode": "training"}, mine, *gone, *roles)


def calls() -> Iterator[Any]:
    urls = {
        "postgresql://fleet@db.example.org/fleet": ["5432"],
        "postgresql://fleet@db.example.org:6432/fleet?sslmode=verify-full": ["6432"],
        "postgresql://fleet@a,b:6000/fleet": ["5432", "6000"],
        "postgresql://fleet@[fd00::12]/fleet": ["5432"],
        "postgresql://fleet@/fleet?host=a:7000&host=b:7001": ["7000", "7001"],
        "postgresql://fleet@db/fleet?port=7002": ["5432", "7002"],
    }
    for url, ports in urls.items():
        told = {f"{LEARNER_SETTINGS}.database": url, LEARNER_RULES: [DNS, ports]}
        yield row(url, BESIDE, learner(database=url), to=told)
    above = {"address": "root.example.org:7170", "name": "here", "enrollment_file": "/policies/invitation"}
    told = {f"{LEARNER_SETTINGS}.upstream.{name}": value for name, value in above.items()}
    told |= {LEARNER_RULES: [DNS, ["7170", "7072"]]}
    yield row("a learner above", BESIDE, learner(upstream=above), to=told)
    servers = [{"address": address} for address in ("http://prometheus.monitoring:9090", "https://p.example.org/x")]
    told = {f"{LEARNER_SETTINGS}.rollouts.prometheus": servers, LEARNER_RULES: [DNS, ["9090", "443"]]}
    yield row("Prometheus", BESIDE, learner(rollouts={"prometheus": servers}), to=told)
    proxy = [{"ports": [{"port": 3128}]}]
    own = {"networkPolicy": {"extraEgress": {"learner": proxy, "agent": proxy}}}
    yield row("more rules", BESIDE, own, to={LEARNER_RULES: [DNS, ["3128"]], AGENT_RULES: [DNS, API, ["3128"]]})


def learners() -> Iterator[Any]:
    mine = "/policies/a.safetensors"
    yield row("policy", BESIDE, learner(initial_policy=mine), to={f"{LEARNER_SETTINGS}.initial_policy": mine})
    sharing: Json = {"learner": SHARING}
    replaced = [f"{kind}/fedl2-learner" for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy")]
    replaced += ["ConfigMap/fedl2-learner-settings", "Service/fedl2-learner-metrics"]
    new = [each.replace("fedl2-learner", "fedl2-learners") for each in replaced]
    yield row("two learners", BESIDE, sharing, *replaced, *new, VOLUME_OF_ALL)
    claim = f"{TOGETHER} {POD}.volumes.state.persistentVolumeClaim.claimName"
    own = {"learner": {**SHARING, "state": {"existingClaim": "mine"}}}
    yield row("a volume of one's own", sharing, own, VOLUME_OF_ALL, to={claim: "mine"})
    outside = {"learner": {**SHARING, "service": {"type": "LoadBalancer"}}}
    yield row("learners from outside", sharing, outside, "Service/fedl2-learners-0", "Service/fedl2-learners-1")
    three = {"learner": {**SHARING, "replicas": 3}}
    yield row("three learners", sharing, three, to={f"{TOGETHER} spec.replicas": 3})
    handed = {"learner": {**LEARNER, "adminSecret": "admin"}}
    made = [f"{kind}/fedl2-learner" for kind in ("ServiceAccount", "Role", "RoleBinding")]
    made += [f"{ALONE} {POD}.initContainers.admin-secret", f"{ALONE} {POD}.volumes.account"]
    told = {f"{ALONE} {POD}.serviceAccountName": "fedl2-learner", LEARNER_RULES: [DNS, API]}
    yield row("an administrator's Secret", BESIDE, handed, *made, to=told)


ROWS = [*images(), *pods(), *agents(), *calls(), *learners()]


@pytest.mark.parametrize(("base", "values", "differs", "exact"), ROWS)
def test_what_is_set_differs_and_nothing_else(base: Json, values: Json, differs: set[str], exact: Leaves) -> None:
    before, after = flat(base), flat({**base, **values})
    gone = object()
    changed = {at for at in before.keys() | after.keys() if before.get(at, gone) != after.get(at, gone)}
    hashes = {at for at in changed if at.endswith("annotations.fedl2.io/settings")}
    assert bool(hashes) or not any(at.startswith("ConfigMap/") for at in changed), "other settings are other pods"
    changed -= hashes
    whole = {at for at in changed if any(at.startswith((f"{each} ", f"{each}.")) for each in differs)}
    for each in differs:
        assert any(at.startswith((f"{each} ", f"{each}.")) for at in whole), f"{each} is as it was"
    assert {at: after.get(at) for at in changed - whole} == exact


def test_learners_begin_with_the_policy_that_agents_begin_with() -> None:
    after = flat({"learner": LEARNER})
    assert after[f"{LEARNER_SETTINGS}.initial_policy"] == after[f"{SETTINGS}.policy.initial"] == "set-taught"


def test_learners_that_share_are_all_ready_and_have_one_volume() -> None:
    after = flat({"learner": SHARING})
    assert after["PersistentVolumeClaim/fedl2-learners spec.accessModes"] == ["ReadWriteMany"]
    assert after["PersistentVolumeClaim/fedl2-learners metadata.annotations.helm.sh/resource-policy"] == "keep"
    assert after[f"{TOGETHER} {POD}.volumes.state.persistentVolumeClaim.claimName"] == "fedl2-learners"
    assert after[f"{TOGETHER} {POD}.containers.learner.readinessProbe.httpGet.path"] == "/healthz"
    assert after["Service/fedl2-learners spec.clusterIP"] == "None", "its name has the addresses of all"
    assert not any(KEPT in at for at in after if at.startswith(TOGETHER))
    alone = flat({"learner": LEARNER})
    assert alone[f"{ALONE} {POD}.containers.learner.readinessProbe.httpGet.path"] == "/readyz"
    assert any(KEPT in at for at in alone)
