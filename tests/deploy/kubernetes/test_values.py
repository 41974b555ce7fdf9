"""Values of the chart, one row each: all that differs in the render when one is set, and nothing else does."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from rendered import CERTIFIED, CHART, ENROLLED, LEARNER, SHARING, by_helm

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
LEARNER_OBJECTS = [
    *(f"{kind}/fedl2-learner" for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy")),
    *("ConfigMap/fedl2-learner-settings", "Service/fedl2-learner-metrics"),
]
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
    reported = {"NetworkPolicy/fedl2-learner spec.ingress": [["service"], ["metrics"]]}
    reported |= {f"{LEARNER_SETTINGS}.identity.enroll_port": None}
    yield row("nowhere to enroll", BESIDE, learner(identity={"enroll_port": None}), *gone, to=reported)
    certified: Json = {"fleet": CERTIFIED, "replicas": 1}
    further = {"fleet": {**CERTIFIED, "furtherAddresses": ["learner-b.example.org:7170"]}}
    reported = {AGENT_RULES: [DNS, API, ["7070", "7170"]]}
    reported |= {f"{SETTINGS}.learner.further_addresses": ["learner-b.example.org:7170"]}
    yield row("a further learner", certified, further, to=reported)
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
        reported = {f"{LEARNER_SETTINGS}.database": url, LEARNER_RULES: [DNS, ports]}
        yield row(url, BESIDE, learner(database=url), to=reported)
    above = {"address": "root.example.org:7170", "name": "here", "enrollment_file": "/policies/invitation"}
    reported = {f"{LEARNER_SETTINGS}.upstream.{name}": value for name, value in above.items()}
    reported |= {LEARNER_RULES: [DNS, ["7170", "7072"]]}
    yield row("a learner above", BESIDE, learner(upstream=above), to=reported)
    servers = [{"address": address} for address in ("http://prometheus.monitoring:9090", "https://p.example.org/x")]
    reported = {f"{LEARNER_SETTINGS}.rollouts.prometheus": servers, LEARNER_RULES: [DNS, ["9090", "443"]]}
    yield row("Prometheus", BESIDE, learner(rollouts={"prometheus": servers}), to=reported)
    proxy = [{"ports": [{"port": 3128}]}]
    own = {"networkPolicy": {"extraEgress": {"learner": proxy, "agent": proxy}}}
    yield row("more rules", BESIDE, own, to={LEARNER_RULES: [DNS, ["3128"]], AGENT_RULES: [DNS, API, ["3128"]]})


def learners() -> Iterator[Any]:
    mine = "/policies/a.safetensors"
    yield row("policy", BESIDE, learner(initial_policy=mine), to={f"{LEARNER_SETTINGS}.initial_policy": mine})
    reported = {
        f"{LEARNER_SETTINGS}.shutdown_grace_seconds": 100.5,
        f"{ALONE} {POD}.terminationGracePeriodSeconds": 156,
    }
    yield row("a longer end", BESIDE, learner(shutdown_grace_seconds=100.5), to=reported)
    sharing: Json = {"learner": SHARING}
    new = [each.replace("fedl2-learner", "fedl2-learners") for each in LEARNER_OBJECTS]
    yield row("two learners", BESIDE, sharing, *LEARNER_OBJECTS, *new, VOLUME_OF_ALL)
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
    reported = {f"{ALONE} {POD}.serviceAccountName": "fedl2-learner", LEARNER_RULES: [DNS, API]}
    yield row("an administrator's Secret", BESIDE, handed, *made, to=reported)


def of_images() -> Iterator[Any]:
    """What each value says of an image and of who may pull it."""
    at, secrets = f"{POD}.containers", [{"name": "pull"}]
    for name, key, value, shown in (
        ("repository", "image", "mirror/x", "mirror/x:0.1.0"),
        ("tag", "image", "7", "{}:7"),
        ("pullPolicy", "imagePullPolicy", "Always", "Always"),
    ):
        here, there = f"{AGENT} {at}.agent.{key}", f"{ALONE} {at}.learner.{key}"
        yield row(f"image.{name}", {}, {"image": {name: value}}, to={here: shown.format("fedl2-agent")})
        beside = {"learner": {**LEARNER, "image": {name: value}}}
        yield row(f"learner.image.{name}", BESIDE, beside, to={there: shown.format("fedl2-learner")})
    pulled = {f"{workload} {POD}.imagePullSecrets.pull": {} for workload in (AGENT, ALONE)}
    yield row("imagePullSecrets", BESIDE, {"imagePullSecrets": secrets}, to=pulled)


_POLICIES = [f"ValidatingAdmissionPolicy{end}/fedl2-training" for end in ("", "Binding")]


def of_rights() -> Iterator[Any]:
    def roles(*names: str, kinds: tuple[str, ...] = ("ClusterRole", "ClusterRoleBinding")) -> list[str]:
        return [f"{kind}/fedl2-{name}" for kind in kinds for name in names]

    inside = ("Role", "RoleBinding")
    yield row("mode", {}, {"mode": "auto"}, *roles("auto", "auto-view"))
    limited = [*roles("advice"), *roles("advice", kinds=inside)]
    yield row("namespaces", {}, {"namespaces": ["team"]}, *limited, to={f"{SETTINGS}.backend.namespaces": ["team"]})
    own = {"ownNodes": {"selector": "pool=a", "reserved": {"cpu": "1"}}}
    reported = {f"{SETTINGS}.backend.own_nodes.selector": "pool=a", f"{SETTINGS}.backend.own_nodes.reserved.cpu": "1"}
    yield row("ownNodes", {"namespaces": ["team"]}, own, *roles("pods"), *roles("pods", kinds=inside), to=reported)
    yield row("kueue", {"mode": "training"}, {"kueue": {"enabled": True}}, *roles("kueue", "kueue-view"))
    policies = [f"{prefix}-{what}" for prefix in _POLICIES for what in ("namespaces", "rights")]
    yield row("training.admissionPolicy", {"mode": "training"}, {"training": {"admissionPolicy": False}}, *policies)
    account = [f"{kind} subjects" for kind in roles("advice", "pods", "view", kinds=("ClusterRoleBinding",))]
    named = (*account, "RoleBinding/fedl2-lease subjects", "ServiceAccount/fedl2-agent")
    reported = {f"{AGENT} {POD}.serviceAccountName": "mine"}
    yield row("serviceAccount.name", {}, {"serviceAccount": {"name": "mine"}}, *named, to=reported)
    noted = {"ServiceAccount/fedl2-agent metadata.annotations.a/b": "c"}
    yield row("serviceAccount.annotations", {}, {"serviceAccount": {"annotations": {"a/b": "c"}}}, to=noted)
    kept = [f"CustomResourceDefinition/{kind}.fedl2.io" for kind in ("elastictargets", "trainingjobs")]
    yield row("crds", {}, {"crds": {"install": False}}, *kept)


def of_settings() -> Iterator[Any]:
    yield row("cluster", {}, {"cluster": "other"}, to={f"{SETTINGS}.cluster": "other"})
    stated: Json = {
        "backend": {"slot_seconds": 60},
        "policy": {"initial": "drf"},
        "guard": {"deadline_ms": 50},
        "learning": {"enabled": False},
        "sharing": {"enabled": False},
        "decision_log": {"keep": 3},
        "telemetry": {"log_level": "error"},
    }
    for section, fields in stated.items():
        reported = {f"{SETTINGS}.{section}.{name}": value for name, value in fields.items()}
        yield row(f"settings.{section}", {}, {"settings": {section: fields}}, to=reported)
    reported = {f"{LEARNER_SETTINGS}.identity.names": ["a.example.org"]}
    yield row("learner.names", BESIDE, {"learner": {**LEARNER, "names": ["a.example.org"]}}, to=reported)
    yield row("learner.enabled", {}, BESIDE, *LEARNER_OBJECTS)


def of_fleets() -> Iterator[Any]:
    identity = (f"{AGENT} {POD}.volumes.identity", f"{AGENT} {POD}.containers.agent.volumeMounts.identity")
    reported = {AGENT_RULES: [DNS, API, ["7070"]]}
    joined = (*identity, f"{SETTINGS}.learner")
    yield row("fleet", {"replicas": 1}, {"fleet": CERTIFIED}, *joined, to=reported)
    secret = f"{AGENT} {POD}.volumes.identity.secret.secretName"
    other = {"fleet": {**CERTIFIED, "tlsSecret": "other"}}
    yield row("fleet.tlsSecret", {"fleet": CERTIFIED, "replicas": 1}, other, to={secret: "other"})
    base: Json = {"fleet": ENROLLED, "replicas": 1, "state": {"size": "5Gi"}}
    of_secret = f"StatefulSet/fedl2-agent {POD}.volumes.identity.secret"
    for name, values, to in (
        ("name", {"name": "other"}, {f"{of_secret}.secretName": "other"}),
        ("key", {"name": "invitation", "key": "x"}, {f"{of_secret}.items": [{"key": "x", "path": "enrollment"}]}),
    ):
        changed = {"fleet": {**ENROLLED, "enrollmentSecret": values}}
        yield row(f"fleet.enrollmentSecret.{name}", base, changed, to=to)
    elsewhere = {"fleet": {**ENROLLED, "enrollAddress": "other.example.org:7272"}}
    reported = {
        f"{SETTINGS}.learner.enroll_address": "other.example.org:7272",
        AGENT_RULES: [DNS, API, ["7070", "7272"]],
    }
    yield row("fleet.enrollAddress", base, elsewhere, to=reported)


def of_resources() -> Iterator[Any]:
    asked = {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}
    for workload, container, values in (
        (AGENT, "agent", {"resources": asked}),
        (ALONE, "learner", {"learner": {**LEARNER, "resources": asked}}),
    ):
        at = f"{workload} {POD}.containers.{container}.resources"
        reported = {f"{at}.{kind}.{name}": value for kind, each in asked.items() for name, value in each.items()}
        yield row(f"resources: {container}", BESIDE, values, to=reported)
    claim = {"spec.resources.requests.storage": "7Gi", "spec.storageClassName": "fast"}
    size = {"size": "7Gi", "storageClass": "fast"}
    claims = (f"StatefulSet/fedl2-agent spec.{KEPT}", f"{ALONE} spec.{KEPT}")
    yield row("state", {"state": {"size": "5Gi"}}, {"state": size}, claims[0])
    yield row("learner.state", BESIDE, {"learner": {**LEARNER, "state": size}}, claims[1])
    shared = {"learner": {**SHARING, "state": {**SHARING["state"], **size}}}
    reported = {f"{VOLUME_OF_ALL} {at}": value for at, value in claim.items()}
    yield row("a shared volume", {"learner": SHARING}, shared, to=reported)
    key = {"training": {"keySecret": {"name": "mine", "key": "x"}}}
    reported = {f"{AGENT} {POD}.volumes.training.secret.items": [{"key": "x", "path": "key"}]}
    mine: Json = {"mode": "training", "training": {"keySecret": {"name": "mine"}}}
    yield row("training.keySecret.key", mine, key, to=reported)


def of_networks() -> Iterator[Any]:
    policies = ("NetworkPolicy/fedl2-agent", "NetworkPolicy/fedl2-learner")
    yield row("networkPolicy.enabled", BESIDE, {"networkPolicy": {"enabled": False}}, *policies)
    ports = {"networkPolicy": {"apiServer": {"ports": [8443]}}}
    yield row("networkPolicy.apiServer", {}, ports, to={AGENT_RULES: [DNS, ["8443"]]})
    service = "Service/fedl2-learner"
    balanced = {"learner": {**LEARNER, "service": {"type": "LoadBalancer", "annotations": {"a/b": "c"}}}}
    reported = {f"{service} spec.type": "LoadBalancer", f"{service} metadata.annotations.a/b": "c"}
    yield row("learner.service", BESIDE, balanced, to=reported)
    made = {"serviceMonitor": "ServiceMonitor/fedl2-agent", "rules": "PrometheusRule/fedl2-agent"}
    for name, found in made.items():
        watched = {"monitoring": {name: {"enabled": True, "labels": {"a": "b"}}}}
        yield row(f"monitoring.{name}", {}, watched, found)
    shown = [f"ConfigMap/fedl2-agent-dashboard-fedl2-{program}" for program in ("agent", "learner")]
    yield row("monitoring.dashboards", {}, {"monitoring": {"dashboards": {"enabled": True}}}, *shown)
    watched = {"monitoring": {"serviceMonitor": {"enabled": True, "interval": "7s"}}}
    every = {"ServiceMonitor/fedl2-agent spec.endpoints": [{"port": "metrics", "path": "/metrics", "interval": "7s"}]}
    monitored = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    yield row("monitoring.serviceMonitor.interval", monitored, watched, to=every)


ROWS = [*images(), *pods(), *agents(), *calls(), *learners()]
ROWS += [*of_images(), *of_rights(), *of_settings(), *of_fleets(), *of_resources(), *of_networks()]
ELSEWHERE = {
    "networkPolicy.apiServer.cidrs": "test_only_metrics_come_in_and_only_training_asks_coordinators",
    "networkPolicy.metricsFrom": "test_metrics_are_scraped_from_where_an_operator_says",
    "monitoring.dashboards.labels.grafana_dashboard": "test_the_chart_brings_them_where_operators_look",
}
"""Values that tests of other files change."""


def paths(found: Any, path: str = "") -> Iterator[str]:
    if isinstance(found, dict) and found:
        for name, value in found.items():
            yield from paths(value, f"{path}.{name}" if path else name)
    else:
        yield path


def test_every_value_has_a_row() -> None:
    stated = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    changed = {at for case in ROWS for at in paths(case.values[1])}
    missing = {
        at
        for at in {*paths(stated)} - ELSEWHERE.keys()
        if not any(each == at or each.startswith(f"{at}.") for each in changed)
    }
    assert missing == set()


def is_below(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above} ", f"{above}."))


@pytest.mark.parametrize(("base", "values", "differs", "exact"), ROWS)
def test_what_is_set_differs_and_nothing_else(base: Json, values: Json, differs: set[str], exact: Leaves) -> None:
    before, after = flat(base), flat({**base, **values})
    gone = object()
    changed = {at for at in before.keys() | after.keys() if before.get(at, gone) != after.get(at, gone)}
    hashes = {at for at in changed if at.endswith("annotations.fedl2.io/settings")}
    assert bool(hashes) or not any(" agent.yaml." in at or " learner.yaml." in at for at in changed), (
        "other settings are other pods"
    )
    changed -= hashes
    whole = {at for at in changed if any(is_below(at, each) for each in differs)}
    for each in differs:
        assert any(is_below(at, each) for at in whole), f"{each} is as it was"
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
