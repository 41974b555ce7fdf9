"""Objects of an installation, as Helm and kustomize make them, and the programs of others that judge them."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import Chart

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "charts" / "fedl2"
VERSIONS = (
    re.findall(r"\d+\.\d+", yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"])[0],
    kubernetes_validate.latest_version(),
)
"""The oldest Kubernetes that the chart takes, and the newest whose schemas are here."""
MODES = ("advice", "auto", "training")
CERTIFIED: Json = {"address": "learner.example.org:7070", "tlsSecret": "fedl2-tls"}
ENROLLED: Json = {"address": "learner.example.org:7070", "enrollmentSecret": {"name": "invitation"}}
MONITORED: Json = {name: {"enabled": True} for name in ("serviceMonitor", "rules", "dashboards")}
OWN_NODES: Json = {"selector": "pool=research", "reserved": {"cpu": "500m"}}
LEARNER: Json = {"enabled": True, "names": ["learner.example.org"]}
SCRAPED_FROM: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
SHARING: Json = {
    **LEARNER,
    "replicas": 2,
    "settings": {"database": "postgresql://fleet@db.example.org/fleet"},
    "state": {"accessMode": "ReadWriteMany"},
}
VALUES: dict[str, Json] = {
    **{mode: {"mode": mode} for mode in MODES},
    **{f"{mode} of one namespace": {"mode": mode, "namespaces": ["team"]} for mode in MODES},
    **{f"{mode} of two namespaces": {"mode": mode, "namespaces": ["team", "lab"]} for mode in MODES},
    "on nodes of its own": {"mode": "training", "namespaces": ["team", "lab"], "ownNodes": OWN_NODES},
    "with certificates": {"fleet": CERTIFIED, "replicas": 1},
    "enrolled": {"fleet": ENROLLED, "replicas": 1, "state": {"size": "5Gi"}},
    "a learner beside": {"learner": LEARNER, "monitoring": MONITORED},
    "with state": {"state": {"size": "5Gi", "storageClass": "fast"}},
    "scraped from one namespace": {"learner": LEARNER, "networkPolicy": {"metricsFrom": [SCRAPED_FROM]}},
    "monitored": {"monitoring": MONITORED},
    "learners that share a volume": {"learner": SHARING, "monitoring": MONITORED},
    "learners behind load balancers": {"learner": {**SHARING, "service": {"type": "LoadBalancer"}}},
    "a learner with an administrator's Secret": {"learner": {**LEARNER, "adminSecret": "fedl2-admin"}},
    "as the cluster numbers users": {
        "mode": "training",
        "learner": LEARNER,
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    },
    "one's own account": {"serviceAccount": {"name": "mine"}, "crds": {"install": False}},
}
"""Ways to install, each by its values."""


@functools.cache
def _rendered(values: str, name: str, namespace: str) -> dict[str, str]:
    with Chart.load(CHART) as chart:
        return chart.render(json.loads(values), name=name, namespace=namespace)


@functools.cache
def _read(text: str) -> list[Json]:
    """Read by LibYAML, which takes an eighth of the time: these texts are long, and read by nearly every test."""
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def by_helm(values: Json | None = None, name: str = "fedl2", namespace: str = "fedl2") -> list[Json]:
    """All objects of a release."""
    files = _rendered(json.dumps(values or {}, sort_keys=True), name, namespace)
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    return [copy.deepcopy(found) for text in texts for found in _read(text)]


def notes(values: Json) -> str:
    """What is printed after an installation."""
    return _rendered(json.dumps(values, sort_keys=True), "fedl2", "fedl2")["fedl2/templates/NOTES.txt"]


def tool(name: str, package: str) -> str:
    """The path of a program; tests are skipped without, except where they must not be."""
    path = shutil.which(name)
    if path is None:
        said = f"no {name}: install Debian's {package}"
        if os.environ.get("FEDL2_KUBE_TOOLS_REQUIRED"):
            pytest.fail(said)
        pytest.skip(said)
    return path


@functools.cache
def _kustomized(overlay: str, kubectl: str) -> str:
    command = [kubectl, "kustomize", str(DEPLOY / "kustomize" / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_kustomize(overlay: str) -> list[Json]:
    """All objects of an overlay."""
    return copy.deepcopy(_read(_kustomized(overlay, tool("kubectl", "kubernetes-client"))))


@functools.cache
def _valid(text: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(text), version, strict=True)


def validate(found: Json, version: str) -> None:
    """Against the schema of that Kubernetes; an object that is as one before is not looked at again: most are."""
    _valid(json.dumps(found, sort_keys=True), version)


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    """The objects of some kinds."""
    return [found for found in objects if found["kind"] in kinds]


def one(objects: list[Json], kind: str, name: str = "") -> Json:
    """The only object of a kind, or of a name."""
    (found,) = [each for each in of_kind(objects, kind) if not name or each["metadata"]["name"] == name]
    return found


def part(objects: list[Json], component: str = "agent") -> list[Json]:
    """What belongs to the agent, or to another component."""
    label = "app.kubernetes.io/component"
    return [found for found in objects if found["metadata"].get("labels", {}).get(label, "agent") == component]


def workload(objects: list[Json], component: str = "agent") -> Json:
    """Whatever runs the pods."""
    (found,) = of_kind(part(objects, component), "Deployment", "StatefulSet")
    return found


def pod_spec(objects: list[Json], component: str = "agent") -> Json:
    """The pods' specification."""
    spec: Json = workload(objects, component)["spec"]["template"]["spec"]
    return spec


def settings_text(objects: list[Json], component: str = "agent") -> str:
    """The configuration file."""
    (mounted,) = [each for each in pod_spec(objects, component)["volumes"] if each["name"] == "settings"]
    text: str = one(objects, "ConfigMap", mounted["configMap"]["name"])["data"][f"{component}.yaml"]
    return text


def rules(objects: list[Json]) -> list[Json]:
    """All rules for the agent's account, each with its namespace unless it holds everywhere."""
    account = pod_spec(objects)["serviceAccountName"]
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]): role["rules"]
        for role in of_kind(objects, "Role", "ClusterRole")
    }
    found = []
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", account, "fedl2")
        kind, place = binding["roleRef"]["kind"], binding["metadata"].get("namespace")
        of_role = roles.pop((kind, place if kind == "Role" else None, binding["roleRef"]["name"]))
        found += [{**rule, **({"namespace": place} if place else {})} for rule in of_role]
    assert not roles, f"nobody is bound to {list(roles)}"
    return found


def grants(objects: list[Json]) -> set[tuple[str, ...]]:
    """All that the agent's account may do: where (empty: everywhere), API group, resource, name, verb."""
    return {
        (rule.get("namespace", ""), group, resource, name, verb)
        for rule in rules(objects)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
