"""Releases by Helm itself, which applies server-side, on the test API server: from the chart and definitions of before,
and from one set of values to another, while jobs run.

`before/` holds the chart as it was, packed: of the last release, or before the last change that an upgrade could feel.
"""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.cluster import Cluster, Waits, running_cluster
from held_digits import EPOCHS, SAMPLES, held_command
from helm_python import Config, HelmReleaseError
from rendered import CHART, LEARNER, SHARING, by_helm, of_kind, rules
from training_cluster import Agent, agent_of, finish, let_go, pods_of, status_of, submit, wait_size
from training_objects import TABLE, spec, template
from typer.testing import CliRunner

from cluster_agent.cli import app
from policy_net.domain import Allocation

Json = dict[str, Any]
BEFORE = Path(__file__).parent / "before" / "fedl2-0.1.0.tgz"
TARGETS = "elastictargets.fedl2.io"
WORKLOADS = ("deployments.apps", "statefulsets.apps")
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


@contextlib.contextmanager
def helm(cluster: Cluster) -> Iterator[Config]:
    """Helm, with its notes of releases in memory."""
    if cluster.find("namespaces", "fedl2", "") is None:
        cluster.make("namespaces", {"metadata": {"name": "fedl2"}})
    config = Config(kubeconfig_path=cluster.kubeconfig, namespace="fedl2", storage_driver="memory")
    with contextlib.closing(config):
        yield config


def installed(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Uids of the objects of a release, by kind and name: another one under a name is another object."""
    kinds = (DEFINITIONS, *WORKLOADS, "services", "configmaps", "persistentvolumeclaims", "secrets")
    return {(kind, each["metadata"]["name"]): each["metadata"]["uid"] for kind in kinds for each in cluster.all(kind)}


def key_of(cluster: Cluster, name: str, values: Json, folder: Path) -> bytes:
    """What the agent's pod gets as its key from the chart of now, under the rights that it has there."""
    account, environment = cluster.account(name, "fedl2", rules(by_helm(values)))
    out = folder / name
    words = ["training-key", "--secret", "fedl2-training", "--out", str(out), "--account", str(account)]
    done = CliRunner().invoke(app, words, env=environment)
    assert done.exit_code == 0, done.output
    assert out.stat().st_mode & 0o777 == 0o600
    return out.read_bytes()


TRAINING: Json = {"mode": "training"}


@pytest.mark.heavy
def test_a_job_runs_on_under_the_same_key_when_the_chart_and_its_definitions_are_upgraded(tmp_path: Path) -> None:
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as cluster, helm(cluster) as release:
        for name in ("shared", "journal"):
            cluster.make("persistentvolumeclaims", {"metadata": {"name": name, "namespace": "team"}, "spec": {}})
        release.install(str(BEFORE), "fedl2", TRAINING)
        secret = cluster.find("secrets", "fedl2-training", "fedl2")
        assert secret is not None
        key = base64.b64decode(secret["data"]["key"])
        made = template(held_command(let_go(cluster)), terminationGracePeriodSeconds=2)
        workers = {"min": 1, "max": 4, "template": made}
        with agent_of(cluster, key=key) as agent:
            submit(cluster, spec(worker=workers, ps={"max": 2}))
            agent.decide(digits=Allocation(1, 1))
            wait_size(cluster, 1, 1)
        target = {"targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}, "min": 1, "max": 4}
        metadata = {"name": "train", "namespace": "team"}
        target = cluster.make(TARGETS, {"metadata": metadata, "spec": {**target, "updateMode": "Auto"}})
        before, pods = installed(cluster), {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster).items()}
        job = cluster.find(TABLE, "digits")
        release.upgrade(str(CHART), "fedl2", TRAINING)
        after = installed(cluster)
        assert after == before, "nothing is made anew, and the Secret stays, which is no part of a release any more"
        assert (cluster.find(TABLE, "digits"), cluster.find(TARGETS, "train")) == (job, target)
        with agent_of(cluster, key=key_of(cluster, "agent", TRAINING, tmp_path), lease_epoch=8) as successor:
            goes_on(cluster, successor, pods)
            assert finish(cluster)["progress"]["samples"] == SAMPLES * EPOCHS


def goes_on(cluster: Cluster, agent: Agent, pods: dict[str, str]) -> None:
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    now = {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster).items()}
    assert pods.items() <= now.items(), "the coordinator knew the agent, and no pod was made again"
    assert status_of(cluster)["phase"] == "Running"


def test_a_new_release_has_a_key_that_every_agent_gets_and_renders_never_change(tmp_path: Path) -> None:
    with running_cluster() as cluster, helm(cluster) as release:
        release.install(str(CHART), "fedl2", TRAINING)
        assert cluster.find("secrets", "fedl2-training", "fedl2") is None
        first = key_of(cluster, "one", TRAINING, tmp_path)
        assert len(first) >= 32
        release.upgrade(str(CHART), "fedl2", {**TRAINING, "cluster": "other"})
        assert key_of(cluster, "two", TRAINING, tmp_path) == first
        secret = cluster.find("secrets", "fedl2-training", "fedl2")
        assert secret is not None
        assert base64.b64decode(secret["data"]["key"]) == first
        release.uninstall("fedl2")
        assert cluster.find("secrets", "fedl2-training", "fedl2") == secret


@pytest.mark.parametrize("first", [CHART, BEFORE], ids=["from this chart", "from the chart of before"])
def test_replicas_go_from_two_to_one_and_back(first: Path) -> None:
    def strategy(cluster: Cluster) -> Json:
        found = cluster.find("deployments.apps", "fedl2-agent", "fedl2")
        assert found is not None
        stated: Json = found["spec"]["strategy"]
        return stated

    with running_cluster() as cluster, helm(cluster) as release:
        release.install(str(first), "fedl2", {"replicas": 2})
        two = strategy(cluster)
        release.upgrade(str(CHART), "fedl2", {"replicas": 1})
        assert strategy(cluster)["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
        release.upgrade(str(CHART), "fedl2", {"replicas": 2})
        assert (
            strategy(cluster)
            == two
            == {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            }
        )


def test_the_server_refuses_what_the_chart_of_before_made_of_one_replica() -> None:
    with running_cluster() as cluster, helm(cluster) as release:
        release.install(str(BEFORE), "fedl2", {"replicas": 2})
        with pytest.raises(HelmReleaseError, match=r"spec\.strategy\.rollingUpdate: Forbidden"):
            release.upgrade(str(BEFORE), "fedl2", {"replicas": 1})


@pytest.mark.parametrize("values", [{}, {**TRAINING, "learner": LEARNER}], ids=["an agent", "a learner beside"])
def test_values_of_the_release_before_are_taken_as_they_were(values: Json) -> None:
    with running_cluster() as cluster, helm(cluster) as release:
        release.install(str(BEFORE), "fedl2", values)
        upgraded = release.upgrade(str(CHART), "fedl2", {}, reuse_values=True)
        made = {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(upgraded["manifest"])}
        assert made == {(found["kind"], found["metadata"]["name"]): found for found in by_helm(values)}


WAYS: list[tuple[str, Json, Json]] = [
    ("as it was", {"learner": LEARNER}, {"learner": LEARNER}),
    ("advice to auto", {}, {"mode": "auto"}),
    ("auto to training", {"mode": "auto"}, TRAINING),
    ("training to advice", TRAINING, {}),
    ("state as it was", {"state": {"size": "5Gi"}}, {"state": {"size": "5Gi"}}),
    ("kept state", {}, {"state": {"size": "5Gi"}}),
    ("kept no more", {"state": {"size": "5Gi"}}, {}),
    ("one replica", {}, {"replicas": 1}),
    ("one learner to two", {"learner": LEARNER}, {"learner": SHARING}),
    ("two learners to one", {"learner": SHARING}, {"learner": LEARNER}),
    ("behind load balancers", {"learner": LEARNER}, {"learner": {**LEARNER, "service": {"type": "LoadBalancer"}}}),
    ("no user", {"learner": LEARNER}, {"learner": LEARNER, "podSecurityContext": {"runAsUser": None, "fsGroup": None}}),
]


@pytest.mark.parametrize(("first", "then"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_every_change_of_values_is_taken_by_the_server(first: Json, then: Json) -> None:
    with running_cluster() as cluster, helm(cluster) as release:
        of_this_chart_alone = first.get("learner") == SHARING
        release.install(str(CHART if of_this_chart_alone else BEFORE), "fedl2", first)
        definitions = {at: uid for at, uid in installed(cluster).items() if at[0] == DEFINITIONS}
        release.upgrade(str(CHART), "fedl2", then)
        there = installed(cluster)
        assert definitions.items() <= there.items()
        wanted = {each["metadata"]["name"] for each in of_kind(by_helm(then), "Deployment", "StatefulSet")}
        assert {name for kind, name in there if kind in WORKLOADS} == wanted
