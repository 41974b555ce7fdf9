"""`cluster-agent explain` and `simulate` beside a Kubernetes cluster, with a user's own kubeconfig and rights."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.rbac import allowed_by
from apiserver.serving import Fault
from kube_cluster import KubeCluster, kube_cluster
from kube_shell import DEADLINE_SECONDS, KubeShell
from rich.console import Console

from cluster_agent.jobs.cluster_access import USUAL_POLICY
from cluster_agent.jobs.cluster_explaining import explained

Json = dict[str, Any]
PROGRESS = {"annotations": {"samples": "samples", "total": "total"}}


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.node("a", gpus=4)
        made.job("train", workers=2, on="a")
        made.target("train", most=8, modelType="bert-64-allreduce", progressFrom=PROGRESS)
        made.annotate("train", samples="500", total="2000000")
        made.job("other", workers=1, on="a")
        made.target("other", most=3)
        yield made


@pytest.fixture
def shell(cluster: KubeCluster, tmp_path: Path) -> KubeShell:
    return KubeShell(cluster, tmp_path)


def job(name: str = "new", workers: int = 2, gpus: int = 1, **spec: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    sizes = {"parallelism": workers, "completions": workers, "completionMode": "Indexed"}
    metadata = {"name": name, "namespace": "team"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**sizes, "template": template, **spec},
    }


def target(of: str = "new", **spec: Any) -> Json:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": of}
    return {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "ElasticTarget",
        "metadata": {"name": of, "namespace": "team"},
        "spec": {"targetRef": ref, "min": 1, "max": 4, "modelType": "bert-64-allreduce", **spec},
    }


@pytest.mark.heavy
def test_without_an_agents_state_the_shipped_policy_is_asked_and_it_is_said(shell: KubeShell) -> None:
    facts = shell.type("explain", "team/train", "-o", "json", forked=False).json
    assert (facts["state"], facts["workers"], facts["min"], facts["max"]) == ("running", 2, 1, 8)
    assert facts["progress"] == {"samples": 500.0, "total": 2_000_000.0, "share": 500 / 2_000_000}
    assert facts["recommendation"] is None
    assert facts["speedsFrom"] == "shipped priors of bert-64-allreduce"
    decision = facts["decision"]
    assert (decision["from"], decision["policy"], decision["number"]) == ("now", USUAL_POLICY, None)
    assert 1 <= decision["workers"] <= 3, "four GPUs for two jobs"
    gains = facts["gains"]
    assert [row["workers"] for row in gains] == list(range(1, 9))
    assert all(row["samplesPerSecond"] > 0 for row in gains)
    assert next(row for row in gains if row["workers"] == 2)["timesAsFastAsNow"] == 1.0
    assert any(row["step"] and row["step"]["taken"] for row in gains)
    assert [row["name"] for row in facts["others"]] == ["team/other"]
    shown = shell.type("explain", "team/train").out
    for words in ("Job train", "by policy", "by shipped priors", "advised", "Others were given: team/other"):
        assert words in shown


def test_of_a_type_that_nobody_knows_only_ratios_are_told(shell: KubeShell) -> None:
    facts = shell.type("explain", "team/other", "-o", "yaml")
    assert facts.code == 0
    assert "nothing is known of other" in facts.out
    assert "samplesPerSecond: null" in facts.out
    assert "timesAsFastAsNow: 1.0" in facts.out


def test_a_name_that_is_nearly_right_is_answered_with_the_nearest(shell: KubeShell) -> None:
    said = shell.type("explain", "team/tran")
    assert (said.code, said.line) == (2, "cluster-agent: no ElasticTarget team/tran; did you mean team/train?\n")
    said = shell.type("explain", "train", "--kubeconfig", str(shell.folder / "kubeconfig.yaml"))
    assert (said.code, said.line) == (2, "cluster-agent: train: on a cluster a target is named NAMESPACE/NAME\n")


def test_what_cannot_be_used_and_what_waits_are_told(cluster: KubeCluster, shell: KubeShell) -> None:
    cluster.job("queue", workers=2, completionMode="NonIndexed")
    cluster.target("queue")
    facts = shell.type("explain", "team/queue", "-o", "json").json
    assert facts["state"] == "not usable"
    assert facts["waitsFor"].startswith("nothing: Job queue: it is no Indexed Job")
    assert facts["decision"] is None
    cluster.job("pending", workers=2)
    cluster.target("pending", most=2)
    assert shell.type("explain", "team/pending", "-o", "json").json["state"] == "waiting"
    assert "Off" in shell.type("explain", "team/train", "-o", "json").json["waitsFor"]


def test_what_an_agent_has_set_and_said_of_it_stands_there(cluster: KubeCluster, shell: KubeShell) -> None:
    made = {"workers": 2, "policyVersion": "fleet-7", "decisionId": 41, "reason": "arrival"}
    limited = {"type": "Limited", "status": "True", "reason": "Frozen", "message": "its label\x1b[31m says so"}
    status = {"allocation": made, "conditions": [limited, "senseless"], "recommendation": "senseless"}
    cluster.change("elastictargets.fedl2.io", "train", "status", status=status)
    facts = shell.type("explain", "team/train", "-o", "json").json
    assert facts["allocation"] == made
    assert [each["reason"] for each in facts["conditions"]] == ["Frozen"]
    shown = shell.type("explain", "team/train").out
    assert "2 workers by fleet-7, decision 41: arrival" in shown
    assert "True, Frozen: its label\\x1b[31m says so" in shown


def test_events_on_the_target_and_its_job_are_listed(cluster: KubeCluster, shell: KubeShell) -> None:
    uid = cluster.server.call(lambda: cluster.server.store.get("jobs.batch", "team", "train"))["metadata"]["uid"]
    about = {"kind": "Job", "name": "train", "namespace": "team", "uid": uid}
    for number, reason in enumerate(("SuccessfulCreate", "BackoffLimitExceeded")):
        event = {
            "metadata": {"name": f"e{number}", "namespace": "team"},
            "involvedObject": about,
            "type": "Normal",
            "reason": reason,
            "message": "pods\x1b[31m\nwere made",
            "lastTimestamp": f"2026-01-0{number + 1}T00:00:00Z",
            "count": number + 1,
        }
        cluster.make("events", event)
    other = {"metadata": {"name": "x", "namespace": "team"}, "involvedObject": {"uid": "another"}, "reason": "Not"}
    cluster.make("events", other)
    facts = shell.type("explain", "team/train", "-o", "json").json
    assert [event["reason"] for event in facts["events"]] == ["SuccessfulCreate", "BackoffLimitExceeded"]
    shown = shell.type("explain", "team/train").out
    assert "Job BackoffLimitExceeded: pods\\x1b[31m were made (2 times)" in shown, "nothing that a terminal obeys"


def test_whoever_may_see_one_namespace_only_learns_of_their_own_jobs(cluster: KubeCluster, shell: KubeShell) -> None:
    groups = [("", ["pods", "events"]), ("batch", ["jobs"]), ("fedl2.io", ["elastictargets"])]
    rules = [
        {"apiGroups": [group], "resources": names, "verbs": ["get", "list"], "namespace": "team"}
        for group, names in groups
    ]
    cluster.server.tokens = {"root": "root", "one": "one", "none": "none"}
    cluster.server.may = allowed_by({"one": rules, "none": []})
    shell.kubeconfig(cluster.server.address, "one")
    facts = shell.type("explain", "team/train", "-o", "json").json
    assert facts["decision"] is None
    assert facts["gains"]
    assert "you may not read nodes everywhere: what is free is not known" in facts["notes"]
    said = shell.type("simulate", "-f", shell.file("job.yaml", job()))
    assert said.code == 1
    assert "fedl2-advice" in said.line
    shell.kubeconfig(cluster.server.address, "none")
    said = shell.type("explain", "team/train")
    assert said.code == 1
    assert "403 Forbidden" in said.line
    assert "fedl2-advice" in said.line
    shell.kubeconfig(cluster.server.address, "expired")
    said = shell.type("explain", "team/train")
    assert said.code == 1
    assert "401" in said.line


@pytest.mark.parametrize("words", [("explain", "team/train"), ("simulate", "-f", "JOB")])
def test_no_kubeconfig_no_server_and_no_crd_are_one_line_each(
    cluster: KubeCluster, shell: KubeShell, words: tuple[str, ...]
) -> None:
    file = shell.file("job.yaml", job())
    words = tuple(file if word == "JOB" else word for word in words)
    said = shell.type(*words, "--kubeconfig", "/nowhere/kubeconfig", usual=False)
    assert said.code == 2
    assert "/nowhere/kubeconfig cannot be used" in said.line
    said = shell.type(*words, "--context", "none")
    assert said.code == 2
    assert "cannot be used" in said.line
    cluster.server.faults = lambda asked: Fault(code=503)
    said = shell.type(*words)
    assert said.code == 3
    assert "503" in said.line
    shell.kubeconfig("http://127.0.0.1:9")
    said = shell.type(*words)
    assert said.code == 3
    assert "does not answer" in said.line


def test_without_the_crd_explain_says_what_to_apply_and_simulate_goes_on(
    cluster: KubeCluster, shell: KubeShell
) -> None:
    cluster.server.faults = lambda asked: Fault(code=404) if asked.resource == "elastictargets.fedl2.io" else None
    said = shell.type("explain", "team/train")
    assert said.code == 2
    assert "deploy/crds/elastictargets.yaml" in said.line
    answer = shell.type("simulate", "-f", shell.file("job.yaml", job(workers=1)), "--hours", "1", "-o", "json").json
    assert answer["jobsPresent"] == 0
    assert any("no ElasticTargets here" in note for note in answer["notes"])


@pytest.mark.heavy
def test_an_elastic_job_ends_earlier_with_room_and_the_same_seed_says_the_same(shell: KubeShell) -> None:
    file = shell.file("job.yaml", job(workers=1), target())
    words = ("simulate", "-f", file, "--hours", "5", "--runs", "5", "--seed", "3", "-o", "json")
    answer = shell.type(*words).json
    assert answer == shell.type(*words, forked=False).json
    assert answer["workers"] == {"requested": 1, "min": 1, "max": 4}
    assert (answer["runs"], answer["seed"], answer["policy"], answer["jobsPresent"]) == (5, 3, USUAL_POLICY, 2)
    fixed, advised = answer["asItIs"], answer["advised"]
    assert fixed["end"]["low"] < fixed["end"]["median"] < fixed["end"]["high"]
    assert fixed["end"]["median"] == pytest.approx(5 * 3600, rel=0.3)
    assert advised["end"]["median"] < fixed["end"]["median"]
    shown = shell.type("simulate", "-f", file, "--hours", "5").out
    assert "with 1 worker, as sizes are today" in shown
    assert f"with 1 to 4 workers, as {USUAL_POLICY} sets sizes" in shown


def test_behind_jobs_that_take_all_it_starts_when_they_end(cluster: KubeCluster, shell: KubeShell) -> None:
    cluster.job("big", workers=1, gpus=1, on="a")
    cluster.target("big", most=1, progressFrom=PROGRESS)
    answer = shell.type("simulate", "-f", shell.file("job.yaml", job(workers=2)), "--hours", "1", "-o", "json").json
    assert answer["asItIs"]["start"]["low"] > 0.0
    assert answer["asItIs"]["end"]["low"] > answer["asItIs"]["start"]["low"]


def test_a_job_without_a_namespace_or_a_name_is_one_of_the_default_namespace(shell: KubeShell) -> None:
    nameless = {**job(), "metadata": {"generateName": "new-"}}
    answer = shell.type("simulate", "-f", shell.file("job.yaml", nameless), "--hours", "1", "-o", "json").json
    assert answer["workers"] == {"requested": 2, "min": 2, "max": 2}
    assert answer["asItIs"]["end"]["median"] > 0.0


def test_work_is_taken_from_the_manifest_where_it_says_it(shell: KubeShell) -> None:
    annotated = job()
    annotated["metadata"]["annotations"] = {"total": "90000"}
    file = shell.file("job.yaml", annotated, target(progressFrom=PROGRESS))
    answer = shell.type("simulate", "-f", file, "--runs", "3", "-o", "json").json
    assert not any("does not say its work" in note for note in answer["notes"])
    same = shell.type("simulate", "-f", file, "--runs", "3", "--samples", "90000", "-o", "json").json
    assert same == answer
    assert not answer["asItIs"]["end"]["guess"]
    other = shell.type("simulate", "-f", shell.file("other.yaml", job(), target()), "-o", "json").json
    assert (other["asItIs"]["start"]["guess"], other["asItIs"]["end"]["guess"]) == (False, True)
    assert other["asItIs"]["end"]["high"] > 100 * other["asItIs"]["end"]["median"]
    lines = shell.type("simulate", "-f", shell.file("other.yaml", job(), target()), "--runs", "2").out.splitlines()
    assert "does not say its work" in lines[0], "what makes it a guess comes first"
    assert any(line.startswith("  ends in ") and line.endswith(": a guess, without bounds") for line in lines)
    assert any("does not say its work" in note for note in other["notes"])


@pytest.mark.parametrize(
    ("documents", "line"),
    [
        ([], "has no Job and no ElasticTarget"),
        ([job(), job("more")], "has 2 Jobs"),
        ([job(), {"kind": "Service", "metadata": {"name": "x"}}], "document 2: is a Service"),
        (["text"], "document 1: is no Kubernetes object"),
        ([{**job(), "apiVersion": "batch/v2"}], "its Job is of 'batch/v2': use batch/v1"),
        ([job(parallelism=0)], "spec.parallelism is 0: use 1 to 64"),
        ([job(parallelism="many")], "spec.parallelism is 'many'"),
        ([job(), target("another")], "points at another Job"),
        ([job(), {**target(), "spec": ["x"]}], "points at another Job"),
        ([job(), {**target(), "spec": {"targetRef": "new"}}], "points at another Job"),
        ([{**job(), "spec": ["x"]}], "its Job cannot be read"),
        ([{**job(), "metadata": {"name": "new", "annotations": "x"}}], "its Job cannot be read"),
        ([job(), target(max=1, min=3)], "spec.max is 1, below spec.min, which is 3"),
        ([job(completionMode="NonIndexed"), target()], "it is no Indexed Job"),
        ([job(template={"spec": {"containers": [{}]}})], "its pods request neither CPU nor GPUs"),
        ([job(gpus=9)], "job.yaml: the job never fits: 2 workers"),
    ],
)
def test_a_manifest_that_cannot_be_foreseen_is_one_line(shell: KubeShell, documents: list[Any], line: str) -> None:
    said = shell.type("simulate", "-f", shell.file("job.yaml", *documents))
    assert said.code == 2, said
    assert line in said.line


def test_options_of_the_two_kinds_of_jobs_do_not_mix(shell: KubeShell) -> None:
    file = shell.file("job.yaml", job())
    for words, line in [
        (("-f", file, "--epochs", "3"), "--epochs does not go with -f"),
        (("-f", file, "--samples", "3", "--hours", "1"), "give one of them"),
        (("--hours", "1", "--", "python", "x.py"), "--hours goes with -f"),
        ((), "no job: give a job file"),
        (("-f", str(shell.folder / "none.yaml")), "No such file"),
    ]:
        said = shell.type("simulate", *words)
        assert said.code == 2, words
        assert line in said.line
    (shell.folder / "bad.yaml").write_text("{a: [", encoding="utf-8")
    said = shell.type("simulate", "-f", str(shell.folder / "bad.yaml"))
    assert said.code == 2
    assert "is no YAML" in said.line


def test_with_an_agents_state_its_own_decision_is_explained(cluster: KubeCluster, shell: KubeShell) -> None:
    path = shell.config(slot_seconds=60.0)
    agent = shell.start("run", "--config", str(path), log=shell.folder / "agent.log")
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not cluster.status_of("train").get("recommendation"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        facts = shell.type("explain", "team/train", "--config", str(path), "-o", "json").json
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(DEADLINE_SECONDS)
    assert facts["decision"]["from"] == "log"
    assert (facts["decision"]["policy"], facts["decision"]["guard"]) == ("set", [])
    assert facts["decision"]["number"] >= 0
    assert facts["recommendation"]["workers"] == facts["decision"]["workers"]
    assert [each["reason"] for each in facts["conditions"]] == ["Advised"]
    shown = shell.type("explain", "team/train", "--config", str(path)).out
    assert "changed nothing" in shown
    cluster.job("late", workers=1, on="a")
    cluster.target("late")
    late = shell.type("explain", "team/late", "--config", str(path), "-o", "json").json
    assert late["decision"]["from"] == "now"
    assert "no decision about it in" in late["notes"][0]
    local = shell.folder / "local.yaml"
    local.write_text(path.read_text(encoding="utf-8").replace("kubernetes", "simulated"), encoding="utf-8")
    said = shell.type("explain", "team/train", "--config", str(local))
    assert said.code == 2
    assert "local.yaml" in said.line


def ended_in(log: Path) -> set[str]:
    """Jobs of which a decision log says that they ended; its last line may be half written."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1]
    rows = [row for line in lines for row in json.loads(line).get("observed", ())]
    return {row[0] for row in rows if row[8]}


@pytest.mark.parametrize("while_away", [False, True])
def test_jobs_that_end_on_a_cluster_are_in_the_report_of_its_agent(
    cluster: KubeCluster, shell: KubeShell, while_away: bool
) -> None:
    path = shell.config(slot_seconds=0.5)
    log = shell.folder / "state" / "decisions.jsonl"
    run = ("run", "--config", str(path))
    output = shell.folder / "agent.log"

    def wait_until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    agent = shell.start(*run, log=output)
    try:
        wait_until(lambda: bool(cluster.status_of("train").get("recommendation")))
        if while_away:
            agent.send_signal(signal.SIGKILL)
            agent.wait(DEADLINE_SECONDS)
        cluster.annotate("train", samples="2000000", total="2000000")
        cluster.change("jobs.batch", "train", "status", status={"conditions": [{"type": "Complete", "status": "True"}]})
        if while_away:
            agent = shell.start(*run, log=output)
        wait_until(lambda: "team/train" in ended_in(log))
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(DEADLINE_SECONDS)
    found = shell.type("report", "--config", str(path), "-o", "json").json
    assert found["jobs"] == 1
    assert found["recorded"]["avgJctSeconds"] > 0.0
    assert found["gpus"] == 4


@pytest.mark.parametrize("columns", [60, 80])
def test_what_people_read_fits_a_narrow_terminal(shell: KubeShell, columns: int) -> None:
    facts = shell.type("explain", "team/train", "-o", "json").json
    event = {"time": "2026-01-01T00:00:00Z", "type": "Warning", "reason": "BackOff", "of": "Job", "count": 2}
    facts |= {"events": [event | {"message": "word " * 40}], "notes": ["a note " * 20]}
    facts["recommendation"] = {"workers": 3, "current": 2, "message": "more: 3 rather than 2", "time": "2026-01-01"}
    console = Console(width=columns, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(explained(facts, time.time()))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= columns
    text = " ".join(captured.get().split())
    by = f"by policy {USUAL_POLICY}"
    for words in ("samples/s", "times now", "advised", "more: 3 rather than 2", by, "(2 times)"):
        assert words in text
    assert "…" not in text, "nothing is cut"
    answer = shell.type("simulate", "-f", shell.file("job.yaml", job(), target()), "--hours", "2", columns=columns)
    assert answer.code == 0


def test_with_the_rights_of_an_agent_of_some_namespaces_it_answers_as_that_agent_sees_it(
    cluster: KubeCluster, shell: KubeShell
) -> None:
    read = {"verbs": ["get", "list"]}
    there = {"namespace": "team", **read}
    cluster.server.tokens["member"] = "member"
    cluster.server.may = allowed_by(
        {
            "member": [
                {"apiGroups": [""], "resources": ["nodes"], **read},
                {"apiGroups": [""], "resources": ["pods", "events"], **there},
                {"apiGroups": ["batch"], "resources": ["jobs"], **there},
                {"apiGroups": ["fedl2.io"], "resources": ["elastictargets"], **there},
            ]
        }
    )
    shell.kubeconfig(cluster.server.address, "member")
    own = {"selector": "!pool"}
    config = shell.config(namespaces=["team"], own_nodes=own)
    facts = shell.type("explain", "team/train", "--config", str(config), "-o", "json").json
    assert facts["decision"]["from"] == "now", "what is free is known on nodes of its own"
    assert any("pods of other namespaces are not seen" in note for note in facts["notes"])
    config = shell.config(namespaces=["team", "fedl2"], own_nodes=own)
    facts = shell.type("explain", "team/train", "--config", str(config), "-o", "json").json
    assert facts["decision"] is None, "what pods of a namespace take that cannot be read is not known"
    said = shell.type("explain", "lab/train", "--config", str(config))
    assert said.code == 2
    assert "namespace lab: the agent looks after team, fedl2 only (backend.namespaces)" in said.line
