"""The agent in some namespaces, under the Roles that the chart makes: what it does there, and nothing elsewhere."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.asked import Asked
from apiserver.cluster import Cluster, Node, running_cluster
from apiserver.serving import KubeServer
from rendered import DEPLOY, by_helm, rules, settings_text

pytestmark = pytest.mark.heavy
Json = dict[str, Any]
TRAINING_JOBS, TARGETS, JOBS = "trainingjobs.fedl2.io", "elastictargets.fedl2.io", "jobs.batch"
TRAIN = DEPLOY.parent / "docs" / "examples" / "digits" / "train.py"
NAMESPACES = ["team", "lab", "gone"]
"""Of the chart; the last one is not there."""
DEADLINE_SECONDS = 240.0


@contextmanager
def cluster_of(*nodes: Node) -> Iterator[Cluster]:
    """With namespaces that have opted in, one of which the agent has nothing to do with."""
    server = KubeServer({"admin-token": "admin"}, bookmark_seconds=1.0, namespaces=("team", "lab", "other", "fedl2"))
    with running_cluster(nodes, "processes", server) as cluster:
        for name in ("elastictargets", "trainingjobs"):
            crd = yaml.safe_load((DEPLOY / "crds" / f"{name}.yaml").read_text(encoding="utf-8"))
            cluster.make("customresourcedefinitions.apiextensions.k8s.io", crd)
        for namespace in ("team", "lab", "other"):
            labels = {"fedl2.io/update-mode": "Auto"}
            cluster.change(
                "namespaces",
                namespace,
                lambda found, labels=labels: {**found, "metadata": {**found["metadata"], "labels": labels}},  # type: ignore[misc]
                namespace="",
            )
            for claim in ("shared", "journal"):
                cluster.make(
                    "persistentvolumeclaims", {"metadata": {"name": claim, "namespace": namespace}, "spec": {}}
                )
        yield cluster


@contextmanager
def agent_of(cluster: Cluster, folder: Path, values: Json) -> Iterator[Path]:
    """The agent as a process, with the chart's settings and the rights of its account; its log."""
    objects = by_helm(values)
    kubeconfig = cluster.grant("agent", [rule for rule in rules(objects) if rule.get("namespace") != "gone"])
    stated = yaml.safe_load(settings_text(objects))
    stated["state_dir"] = "state"
    stated["backend"] |= {"kubeconfig": str(kubeconfig)}
    if "training" in stated["backend"]:
        stated["backend"]["training"] = {}
    stated["telemetry"] |= {"metrics_port": 0, "metrics_host": "127.0.0.1"}
    path, log = folder / "agent.yaml", folder / "log"
    path.write_text(yaml.safe_dump(stated), encoding="utf-8")
    command = [sys.executable, "-m", "cluster_agent.cli", "run", "--config", str(path)]
    with log.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process:
        try:
            yield log
        except (AssertionError, TimeoutError) as error:
            error.add_note(log.read_text(encoding="utf-8")[-8000:])
            raise
        finally:
            process.terminate()
            process.wait(60)


def lines(log: Path, event: str) -> list[Json]:
    found = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if f'"{event}"' in line]
    return [line for line in found if line["event"] == event]


def container(*command: str) -> Json:
    requests = {"cpu": "250m", "memory": "64Mi"}
    return {"name": "main", "image": "trainer", "command": list(command), "resources": {"requests": requests}}


def submit(cluster: Cluster, namespace: str) -> None:
    """A TrainingJob, and a Job with a target that waits to be started."""
    train = container(sys.executable, str(TRAIN), "--epochs=2")
    spec: Json = {
        "modelType": "digits",
        "worker": {"min": 1, "max": 2, "template": {"spec": {"containers": [train]}}},
        "ps": {"min": 1, "max": 1},
        "checkpoints": {"claimName": "shared"},
        "coordinator": {"journal": {"claimName": "journal"}},
    }
    cluster.make(TRAINING_JOBS, {"metadata": {"name": "digits", "namespace": namespace}, "spec": spec})
    template = {"spec": {"restartPolicy": "Never", "containers": [container(sys.executable, "-c", "print('done')")]}}
    suspended = {"suspend": True, "parallelism": 1, "completions": 1, "completionMode": "Indexed"}
    metadata = {"name": "plain", "namespace": namespace}
    cluster.make(JOBS, {"metadata": metadata, "spec": {**suspended, "template": template}, "status": {}})
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "plain"}
    target = {"targetRef": ref, "min": 1, "max": 2, "updateMode": "Auto", "modelType": "other"}
    cluster.make(TARGETS, {"metadata": metadata, "spec": target})


def of_agent(cluster: Cluster) -> list[Asked]:
    return [asked for asked in list(cluster.server.asked) if asked.user == "agent"]


def untouched(cluster: Cluster, namespace: str) -> list[Json]:
    return [
        found
        for table in (TRAINING_JOBS, JOBS, TARGETS, "pods", "services", "secrets", "events")
        for found in cluster.all(table, namespace)
    ]


SETTINGS: Json = {"backend": {"slot_seconds": 5, "debounce_seconds": 0.1}}
READS = ("get", "list", "watch")


def test_jobs_of_its_namespaces_complete_and_those_of_another_are_neither_touched_nor_read(tmp_path: Path) -> None:
    values = {"mode": "training", "namespaces": NAMESPACES, "settings": SETTINGS}
    with cluster_of(Node("a", gpus=0), Node("b", gpus=0)) as cluster:
        for namespace in ("team", "lab", "other"):
            submit(cluster, namespace)
        before = untouched(cluster, "other")
        with agent_of(cluster, tmp_path, values) as log:
            for namespace in ("team", "lab"):
                cluster.wait_for_condition(JOBS, "plain", "Complete", namespace, DEADLINE_SECONDS)
                cluster.wait_for_condition(TRAINING_JOBS, "digits", "Complete", namespace, DEADLINE_SECONDS)
            left_out = lines(log, "namespace-left-out")
        assert untouched(cluster, "other") == before
        asked = of_agent(cluster)
        assert {each.namespace for each in asked if each.writes} == {"team", "lab", "fedl2"}
        everywhere = {(each.resource, each.verb) for each in asked if not each.namespace}
        of_devices = {"resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"}
        assert {resource for resource, _ in everywhere} == {"nodes", "pods", "namespaces"} | of_devices
        assert {verb for _, verb in everywhere} <= set(READS)
        assert {each.name for each in asked if each.resource == "namespaces"} == {"team", "lab", "gone"}
        may = cluster.server.may
        # One namespace was refused, by a line for each kind of thing that is looked after; nothing else was.
        assert {each.namespace for each in asked if not may(each)} == {"gone"}
        assert {(line["namespace"], line["objects"]) for line in left_out} == {
            ("gone", "ElasticTargets"),
            ("gone", "TrainingJobs"),
        }
        assert all("forbidden" in line["error"] for line in left_out)
        assert len(left_out) == 2


def test_on_nodes_of_its_own_it_needs_no_look_at_the_pods_of_others(tmp_path: Path) -> None:
    own = {"selector": "pool=research", "reserved": {"cpu": "7"}}
    values = {"mode": "auto", "namespaces": ["team", "lab"], "ownNodes": own, "settings": SETTINGS}
    with cluster_of(Node("a", gpus=0, labels={"pool": "research"}), Node("b", cpu="64", gpus=0)) as cluster:
        for namespace in ("team", "lab"):
            submit(cluster, namespace)
        with agent_of(cluster, tmp_path, values) as log:
            for namespace in ("team", "lab"):
                cluster.wait_for_condition(JOBS, "plain", "Complete", namespace, DEADLINE_SECONDS)
            (meant,) = lines(log, "free-capacity")
        asked = of_agent(cluster)
        assert {each.resource for each in asked if not each.namespace} == {"nodes", "namespaces"}
        assert [each for each in asked if not cluster.server.may(each)] == []
        assert "pods of other namespaces are not seen" in meant["meaning"]
