"""`cluster-agent explain` and `simulate` where TrainingJobs run or wait beside the targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.rbac import allowed_by
from kube_cluster import KubeCluster, kube_cluster
from kube_shell import KubeShell
from training_objects import CRDS, TABLE, crd

from cluster_agent.jobs.cluster_access import USUAL_POLICY

Json = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.make(CRDS, crd())
        made.node("a", gpus=4)
        made.job("train", workers=1, on="a")
        made.target("train", most=4, modelType="bert-64-allreduce")
        yield made


@pytest.fixture
def shell(cluster: KubeCluster, tmp_path: Path) -> KubeShell:
    return KubeShell(cluster, tmp_path)


def template(gpus: int = 1) -> Json:
    requests = {"cpu": "500m", "memory": "256Mi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"spec": {"containers": [{"name": "main", "image": "trainer", "resources": {"requests": requests}}]}}


def training(cluster: KubeCluster, name: str = "digits", status: Json | None = None, **spec: Any) -> Json:
    """A job that waits, or has the size that its status says, with as many pods."""
    defaults = {
        "modelType": "digits",
        "worker": {"min": 1, "max": 3, "template": template()},
        "ps": {"min": 1, "max": 1},
    }
    made = cluster.make(TABLE, {"metadata": {"name": name, "namespace": "team"}, "spec": {**defaults, **spec}})
    if status is not None:
        cluster.change(TABLE, name, "status", status=status)
        owner = [{"uid": made["metadata"]["uid"], "controller": True, "kind": "TrainingJob", "name": name}]
        for number in range(status["allocation"]["workers"]):
            metadata = {"name": f"{name}-worker-{number}", "namespace": "team", "ownerReferences": owner}
            pod = {**template()["spec"], "nodeName": "a"}
            cluster.make("pods", {"metadata": metadata, "spec": pod, "status": {"phase": "Running"}})
    return made


def runs(workers: int = 3) -> Json:
    progress = {"epoch": "2.00", "totalEpochs": "8", "step": 100, "samples": 2000, "samplesPerSecond": "50"}
    allocation = {"workers": workers, "ps": 1, "policyVersion": "set", "decisionId": "4-1", "reason": "arrival"}
    return {
        "phase": "Running",
        "message": "",
        "startTime": "2026-01-01T00:00:00Z",
        "workers": workers,
        "ps": 1,
        "progress": progress,
        "allocation": allocation,
    }


def advised(shell: KubeShell, *more: str) -> int:
    facts = shell.type("explain", "team/train", *more, "-o", "json").json
    return int(facts["decision"]["workers"])


@pytest.mark.heavy
def test_what_training_jobs_have_and_wait_for_counts_for_a_target(cluster: KubeCluster, shell: KubeShell) -> None:
    alone = advised(shell)
    assert alone == 4, "the only job of a cluster with four GPUs"
    frozen = {"updateMode": "Frozen"}
    training(cluster, "digits", runs(), **frozen)
    assert advised(shell) == 1, "three GPUs are not to be had"
    others = shell.type("explain", "team/train", "-o", "json").json["others"]
    assert [(each["name"], each["workers"], each["ps"]) for each in others] == [("team/trainingjob/digits", 3, 1)]


def test_a_training_job_that_waits_is_weighed_too(cluster: KubeCluster, shell: KubeShell) -> None:
    training(cluster)
    facts = shell.type("explain", "team/train", "-o", "json").json
    assert facts["decision"]["workers"] < 4
    assert [each["name"] for each in facts["others"]] == ["team/trainingjob/digits"]


def test_a_training_job_is_explained_like_a_target(cluster: KubeCluster, shell: KubeShell) -> None:
    made = training(cluster, "digits", runs(2))
    about = {"kind": "TrainingJob", "name": "digits", "namespace": "team", "uid": made["metadata"]["uid"]}
    event = {"metadata": {"name": "e", "namespace": "team"}, "involvedObject": about, "reason": "Resized"}
    cluster.make("events", {**event, "message": "trains with 2 workers and 1 PS", "count": 1})
    facts = shell.type("explain", "team/trainingjob/digits", "-o", "json").json
    assert (facts["state"], facts["workers"], facts["ps"], facts["min"], facts["max"]) == ("running", 2, 1, 1, 3)
    assert facts["progress"] == {"samples": 2000.0, "total": 8000.0, "share": 0.25}
    assert facts["decision"]["from"] == "now"
    assert facts["decision"]["ps"] == 1
    assert {(row["workers"], row["ps"]) for row in facts["gains"]} >= {(1, 1), (2, 1), (3, 1)}
    assert next(row for row in facts["gains"] if row["workers"] == 2)["timesAsFastAsNow"] == 1.0
    assert [each["reason"] for each in facts["events"]] == ["Resized"]
    shown = shell.type("explain", "team/trainingjob/digits").out
    for words in ("2 workers and 1 PS", "1–3 workers and 1–1 PS", "PS", "Resized", "by policy", "Others were given"):
        assert words in shown


def test_training_jobs_that_wait_for_their_author_say_so(cluster: KubeCluster, shell: KubeShell) -> None:
    training(cluster, "held", suspend=True)
    facts = shell.type("explain", "team/trainingjob/held", "-o", "json").json
    assert facts["waitsFor"] == "its author: spec.suspend is true"
    assert facts["decision"] is None
    training(cluster, "mistyped")
    line = "spec.worker.template: no pod can be made"
    condition = {"type": "Accepted", "status": "False", "reason": "NotUsable", "message": line}
    cluster.change(TABLE, "mistyped", "status", status={"phase": "Invalid", "conditions": [condition]})
    facts = shell.type("explain", "team/trainingjob/mistyped", "-o", "json").json
    assert line in facts["waitsFor"]
    assert facts["decision"] is None, "the agent asks no policy about it either"
    training(cluster, "over")
    condition = {"type": "Complete", "status": "True", "reason": "Finished", "message": ""}
    cluster.change(TABLE, "over", "status", status={"phase": "Complete", "conditions": [condition]})
    assert shell.type("explain", "team/trainingjob/over", "-o", "json").json["waitsFor"] == "nothing: it is Complete"


def test_a_status_that_makes_no_sense_is_no_progress(cluster: KubeCluster, shell: KubeShell) -> None:
    progress = {"epoch": "many", "totalEpochs": "-3", "samples": 2000, "step": 10**30}
    training(cluster, "digits", {**runs(2), "progress": progress})
    facts = shell.type("explain", "team/trainingjob/digits", "-o", "json").json
    assert facts["progress"] == {"samples": 2000.0, "total": None, "share": None}


def test_names_that_are_not_there_and_agents_without_training_are_one_line(
    cluster: KubeCluster, shell: KubeShell
) -> None:
    training(cluster)
    said = shell.type("explain", "team/trainingjob/digit")
    line = "cluster-agent: no TrainingJob team/trainingjob/digit; did you mean team/trainingjob/digits?\n"
    assert (said.code, said.line) == (2, line)
    path = str(shell.config())
    said = shell.type("explain", "team/trainingjob/digits", "--config", path)
    assert said.code == 2
    assert "the agent looks after no TrainingJobs" in said.line
    assert advised(shell, "--config", path) == 4, "an agent without backend.training gives them nothing"
    with_training = str(shell.config(training={}))
    assert advised(shell, "--config", with_training) < 4


def test_whoever_may_not_read_training_jobs_is_told_what_that_means(cluster: KubeCluster, shell: KubeShell) -> None:
    training(cluster, "digits", runs())
    names = {"": ["nodes", "pods", "events"], "batch": ["jobs"], "fedl2.io": ["elastictargets"]}
    names["resource.k8s.io"] = ["resourceclaims", "resourceslices"]
    rules = [{"apiGroups": [group], "resources": each, "verbs": ["get", "list"]} for group, each in names.items()]
    cluster.server.tokens = {"root": "root", "one": "one"}
    cluster.server.may = allowed_by({"one": rules})
    shell.kubeconfig(cluster.server.address, "one")
    facts = shell.type("explain", "team/train", "-o", "json").json
    assert facts["decision"]["workers"] == 1, "their pods are others' pods"
    assert any("trainingjobs" in note for note in facts["notes"])
    said = shell.type("explain", "team/trainingjob/digits")
    assert said.code == 2
    assert "you may not read TrainingJobs" in said.line


def test_a_forecast_counts_the_training_jobs_that_are_there(cluster: KubeCluster, shell: KubeShell) -> None:
    training(cluster, "digits", runs())
    training(cluster, "late", modelType="late")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "new", "namespace": "team"},
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template()},
    }
    words = ("simulate", "-f", shell.file("job.yaml", job), "--hours", "1", "--runs", "3", "-o", "json")
    answer = shell.type(*words).json
    assert answer["jobsPresent"] == 3
    assert answer["asItIs"]["start"]["low"] > 0.0, "there is no room before one of them ends"


def manifest(name: str = "new", **spec: Any) -> Json:
    defaults = {"modelType": "digits", "worker": {"max": 3, "template": template()}, "ps": {"max": 2}}
    return {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {key: part for key, part in {**defaults, **spec}.items() if part is not None},
    }


ALL_REDUCE: Json = {"communication": "AllReduce", "ps": None}
FORESEE = ("--runs", "5", "-o", "json")


@pytest.mark.parametrize("first", ["PS", "AllReduce"])
def test_both_kinds_of_one_model_type_are_foreseen_beside_each_other(
    cluster: KubeCluster, shell: KubeShell, first: str
) -> None:
    ring = {"communication": "AllReduce", "ps": None, "checkpoints": {"claimName": "shared"}}
    for kind in (first, "PS" if first == "AllReduce" else "AllReduce"):  # the older one says what kind its type is of
        spec = ring if kind == "AllReduce" else {"ps": {"max": 2}}
        cluster.make(TABLE, manifest(kind.lower(), **spec))
    for asked in (manifest(), manifest(**ALL_REDUCE)):
        answer = shell.type("simulate", "-f", shell.file("job.yaml", asked), "--hours", "1", *FORESEE).json
        assert answer["jobsPresent"] == 3
        assert 0.0 <= answer["advised"]["start"]["median"] < answer["advised"]["end"]["median"]
        assert answer["asItIs"]["end"]["median"] - answer["asItIs"]["start"]["median"] == pytest.approx(3600, rel=0.5)


def test_a_training_job_is_foreseen_by_what_its_type_has_shown(cluster: KubeCluster, shell: KubeShell) -> None:
    training(cluster, "digits", runs(1), updateMode="Frozen")
    file = shell.file("job.yaml", manifest(work={"epochs": 4}))
    answer = shell.type("simulate", "-f", file, *FORESEE).json
    assert answer == shell.type("simulate", "-f", file, *FORESEE).json, "the same seed says the same"
    assert answer["workers"] == {"requested": 1, "min": 1, "max": 3}
    assert answer["ps"] == {"requested": 1, "min": 1, "max": 2}
    assert not any("its work" in note or "is not known" in note for note in answer["notes"])
    fixed, advised = answer["asItIs"], answer["advised"]
    # 4 epochs of 1,000 samples, at the 50 samples/s of the one that runs.
    assert fixed["end"]["median"] - fixed["start"]["median"] == pytest.approx(80.0, rel=0.4)
    assert fixed["end"]["low"] < fixed["end"]["median"] < fixed["end"]["high"]
    assert advised["end"]["median"] < fixed["end"]["median"], "there is room for more than one worker"
    shown = shell.type("simulate", "-f", file, "--runs", "3").out
    assert "with 1 worker and 1 PS, as sizes are today" in shown
    assert f"with 1 to 3 workers and 1 to 2 PSs, as {USUAL_POLICY} sets sizes" in shown
    same = shell.type("simulate", "-f", file, "--samples", "4000", *FORESEE).json
    assert same == answer


def test_steps_count_once_somebody_has_said_how_many_make_an_epoch(cluster: KubeCluster, shell: KubeShell) -> None:
    file = shell.file("job.yaml", manifest(work={"steps": 200}))
    answer = shell.type("simulate", "-f", file, *FORESEE).json
    assert any("spec.work.steps says nothing" in note for note in answer["notes"])
    training(cluster, "digits", runs(1))
    answer = shell.type("simulate", "-f", file, *FORESEE).json
    assert not any("spec.work.steps" in note for note in answer["notes"])
    fixed = answer["asItIs"]
    assert fixed["end"]["median"] - fixed["start"]["median"] == pytest.approx(80.0, rel=0.4)


def test_what_is_guessed_of_a_training_job_is_said(shell: KubeShell) -> None:
    def notes(**spec: Any) -> str:
        file = shell.file("job.yaml", manifest(**spec))
        return " ".join(shell.type("simulate", "-f", file, "--runs", "2", "-o", "json").json["notes"])

    assert "10000 are taken; --samples or --hours says more" in notes(work={"epochs": 2})
    assert "its manifest does not say its work" in notes()
    assert "its updateMode is Off: it keeps the size" in notes(updateMode="Off")
    assert "without spec.checkpoints its size stays" in notes(**ALL_REDUCE)


@pytest.mark.parametrize(
    ("documents", "line"),
    [
        ([manifest(), manifest("more")], "has 2 objects: one TrainingJob is foreseen at a time, alone"),
        ([{**manifest(), "apiVersion": "fedl2.io/v9"}], "its TrainingJob is of 'fedl2.io/v9': use fedl2.io/v1alpha1"),
        ([manifest(worker={"min": 3, "max": 1, "template": template()})], "spec.worker.max is 1, below"),
        ([manifest(suspend=True)], "spec.suspend is true: it would not begin"),
        ([manifest(ps=None)], "spec.ps is missing"),
        ([{**manifest(), "spec": ["x"]}], "spec.worker is missing"),
        ([manifest(worker={"max": 1, "template": template(9)})], "job.yaml: the job never fits"),
        ([manifest(work={"epochs": float("nan")})], "spec.work.epochs is nan"),
        ([{**manifest(), "kind": "Service"}], "is a Service: use a Job, and an ElasticTarget for it, or a TrainingJob"),
    ],
)
def test_a_training_job_that_cannot_be_foreseen_is_one_line(shell: KubeShell, documents: list[Any], line: str) -> None:
    said = shell.type("simulate", "-f", shell.file("job.yaml", *documents))
    assert said.code == 2, said
    assert line in said.line


def test_an_agent_without_training_foresees_no_training_job(shell: KubeShell) -> None:
    said = shell.type("simulate", "-f", shell.file("job.yaml", manifest()), "--config", str(shell.config()))
    assert said.code == 2
    assert "the agent looks after no TrainingJobs" in said.line
