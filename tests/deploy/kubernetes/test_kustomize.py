"""The kustomize overlays: valid, and the same objects, rights and pods as the chart's."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import (
    DEPLOY,
    MODES,
    SCRAPED_FROM,
    VERSIONS,
    by_helm,
    by_kustomize,
    grants,
    of_kind,
    one,
    pod_spec,
    settings_text,
    tool,
    validate,
    workload,
)

from cluster_agent.settings_file import read_settings

Json = dict[str, Any]
each_mode = pytest.mark.parametrize("mode", MODES)


@each_mode
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_and_has_no_unknown_field(mode: str, version: str) -> None:
    for found in by_kustomize(mode):
        validate(found, version)


@each_mode
def test_the_agent_has_the_rights_that_the_chart_gives_it(mode: str) -> None:
    assert grants(by_kustomize(mode)) == grants(by_helm({"mode": mode}))


def test_with_kueue_only_rights_are_added() -> None:
    by_chart = by_helm({"mode": "training", "kueue": {"enabled": True}})
    assert grants(by_kustomize("kueue")) == grants(by_chart)

    def others(objects: list[Json]) -> list[tuple[str, str]]:
        return sorted((each["kind"], each["metadata"]["name"]) for each in objects if "Role" not in each["kind"])

    assert others(by_kustomize("kueue")) == others(by_kustomize("training"))


@each_mode
def test_the_agent_has_the_settings_that_the_chart_gives_it(mode: str, tmp_path: Path) -> None:
    text = settings_text(by_kustomize(mode))
    assert yaml.safe_load(text) == yaml.safe_load(settings_text(by_helm({"mode": mode})))
    (tmp_path / "agent.yaml").write_text(text, encoding="utf-8")
    read_settings(tmp_path / "agent.yaml")


def plain(found: Any) -> Any:
    """Without what says how it was installed: labels of the chart, the hash in the name of settings."""
    if isinstance(found, list):
        return [plain(each) for each in found]
    if isinstance(found, dict):
        by_chart = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by")
        left = {name: plain(each) for name, each in found.items() if name not in (*by_chart, "helm.sh/chart")}
        return {name: each for name, each in left.items() if name != "annotations"}
    return re.sub(r"^fedl2-settings-\w+$", "fedl2-settings", found) if isinstance(found, str) else found


@each_mode
def test_pods_are_the_charts(mode: str) -> None:
    helm, kustomize = by_helm({"mode": mode}), by_kustomize(mode)
    assert plain(pod_spec(kustomize)) == plain(pod_spec(helm))
    assert plain(workload(kustomize)["spec"]) == plain(workload(helm)["spec"])


@each_mode
@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"])
def test_what_is_around_the_pods_is_the_charts(mode: str, kind: str) -> None:
    def specs(objects: list[Json]) -> dict[str, Any]:
        return {
            found["metadata"]["name"]: plain({name: part for name, part in found.items() if name != "metadata"})
            for found in of_kind(objects, kind)
        }

    assert specs(by_kustomize(mode)) == specs(by_helm({"mode": mode})) != {}


def test_metrics_are_scraped_from_one_namespace_by_a_patch_as_by_the_chart(tmp_path: Path) -> None:
    for folder in ("kustomize", "crds"):
        shutil.copytree(DEPLOY / folder, tmp_path / folder)
    own = tmp_path / "kustomize" / "overlays" / "own"
    own.mkdir()
    shutil.copy(DEPLOY / "kustomize" / "metrics-from.yaml", own)
    lines = ["resources: [../training]", "patches: [{path: metrics-from.yaml}]"]
    (own / "kustomization.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [tool("kubectl", "kubernetes-client"), "kustomize", str(own)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    ours = {each["metadata"]["name"]: each for each in of_kind(list(yaml.safe_load_all(made)), "NetworkPolicy")}
    values = {"mode": "training", "networkPolicy": {"metricsFrom": [SCRAPED_FROM]}}
    charts = {each["metadata"]["name"]: each for each in of_kind(by_helm(values), "NetworkPolicy")}
    assert {name: plain(each["spec"]) for name, each in ours.items()} == {
        name: plain(each["spec"]) for name, each in charts.items()
    }
    for each in ours.values():
        validate(each, VERSIONS[0])


@each_mode
def test_it_installs_nothing_that_the_chart_does_not_but_the_namespace(mode: str) -> None:
    def kinds(objects: list[Json]) -> list[str]:
        return sorted(found["kind"] for found in objects)

    by_chart_alone = {"training": {"admissionPolicy": False}}
    assert kinds(by_kustomize(mode)) == sorted(["Namespace", *kinds(by_helm({"mode": mode, **by_chart_alone}))])
    namespace = one(by_kustomize(mode), "Namespace")["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@each_mode
def test_no_overlay_makes_kubectl_warn(mode: str) -> None:
    command = [tool("kubectl", "kubernetes-client"), "kustomize", str(DEPLOY / "kustomize" / "overlays" / mode)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stderr == ""


def test_every_file_that_is_named_is_there() -> None:
    for path in (DEPLOY / "kustomize").rglob("kustomization.yaml"):
        stated = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert set(stated) <= {"apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator"}
        assert all((path.parent / name).exists() for name in stated.get("resources", []))
        assert all((path.parent / patch["path"]).is_file() for patch in stated.get("patches", []))
