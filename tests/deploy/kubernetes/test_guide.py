"""Examples of the guide: the chart takes the values, kustomize takes the overlay over ours."""

import re
import subprocess
from pathlib import Path

import yaml
from rendered import DEPLOY, by_helm, by_kustomize, grants, one, pod_spec, settings_text, tool

import global_learner.settings
from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.settings_file import read_settings

PAGE = (DEPLOY.parent / "docs" / "guide" / "install-kubernetes.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    (found,) = re.findall(rf"```yaml\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_chart_takes_the_values_of_the_guide(tmp_path: Path) -> None:
    values = yaml.safe_load(example("values.yaml"))
    objects = by_helm(values)
    assert one(objects, "PrometheusRule")
    (tmp_path / "agent.yaml").write_text(settings_text(objects), encoding="utf-8")
    assert read_settings(tmp_path / "agent.yaml").cluster == values["cluster"]


def test_the_chart_mounts_the_earlier_key_of_the_guide_where_the_agent_looks(tmp_path: Path) -> None:
    objects = by_helm(yaml.safe_load(example("earlier-key.yaml")))
    (tmp_path / "agent.yaml").write_text(settings_text(objects), encoding="utf-8")
    backend = read_settings(tmp_path / "agent.yaml").backend
    assert isinstance(backend, KubernetesBackendSettings)
    assert backend.training is not None
    assert str(backend.training.key_file) == "/etc/fedl2-training/key"
    (earlier,) = backend.training.earlier_key_files
    (container,) = pod_spec(objects)["containers"]
    (folder,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "earlier-key"]
    (item,) = [each["secret"]["items"][0] for each in pod_spec(objects)["volumes"] if each["name"] == "earlier-key"]
    assert str(earlier) == f"{folder}/{item['path']}"


def test_the_chart_takes_the_two_learners_of_the_guide(tmp_path: Path) -> None:
    objects = by_helm(yaml.safe_load(example("two-learners.yaml")))
    (tmp_path / "learner.yaml").write_text(settings_text(objects, "learner"), encoding="utf-8")
    found = global_learner.settings.read_settings(tmp_path / "learner.yaml")
    assert found.database is not None
    service = f"{one(objects, 'Service', 'fedl2-learners')['metadata']['name']}.fedl2.svc"
    assert found.identity is not None
    assert found.identity.names == (service,)


def test_kustomize_takes_the_overlay_of_the_guide(tmp_path: Path) -> None:
    text = example("kustomization.yaml")
    (stated,) = re.findall(r"resources: \[\.\./fedl2/(deploy/kustomize/overlays/\w+)\]", text)
    (tmp_path / "fedl2").symlink_to(DEPLOY.parent)
    own = tmp_path / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(text, encoding="utf-8")
    settings = settings_text(by_kustomize("advice")).replace("my-cluster", "gpu-east")
    (own / "agent.yaml").write_text(settings, encoding="utf-8")
    command = [tool("kubectl", "kubernetes-client"), "kustomize", str(own)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    (container,) = pod_spec(objects)["containers"]
    assert container["image"] == "images.example.org/fedl2-agent:0.1.0"
    assert yaml.safe_load(settings_text(objects))["cluster"] == "gpu-east"
    assert grants(objects) == grants(by_kustomize(Path(stated).name))


def test_the_guide_says_of_each_mode_what_it_may_write() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    words = {"jobs": "change Jobs", "events": "write Events", "pods": "make and delete pods", "secrets": "Secrets"}
    words |= {"services": "Services", "elastictargets/status": "status of ElasticTargets", "leases": "Lease"}
    words |= {
        "trainingjobs/status": "read TrainingJobs and write their status",
        "trainingjobs/finalizers": "TrainingJobs",
        "trainingjobs": "patch TrainingJobs",
    }
    reported = ""
    for mode in ("advice", "auto", "training"):
        reported += rows[mode]
        for _, _, resource, _, verb in grants(by_helm({"mode": mode})):
            assert verb in ("get", "list", "watch") or words[resource] in reported
