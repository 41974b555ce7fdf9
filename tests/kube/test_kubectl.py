"""The real kubectl on a small cluster of real processes: as users drive it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
import yaml
from apiserver.asked import Asked, Fault, webhook_down
from apiserver.cluster import Cluster, Waits, running_cluster
from kube_objects import PODS, job, pod_spec
from test_contract_custom import CRD, thing

Kubectl = Callable[..., str]
pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the path")


@pytest.fixture(scope="module")
def small_cluster() -> Iterator[Cluster]:
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as found:
        yield found


@pytest.fixture
def kubectl(small_cluster: Cluster) -> Kubectl:
    """Runs kubectl; its output, also what it says of errors, of which there are none unless `fails`."""
    return lambda *words, **more: run(small_cluster, *words, **more)


def run(cluster: Cluster, *words: str, given: object = None, fails: bool = False, user: str = "admin") -> str:
    program = ["kubectl", f"--kubeconfig={cluster.kubeconfig_of(user)}", f"--cache-dir={cluster.folder}/cache", *words]
    text = None if given is None else yaml.safe_dump(given)
    found = subprocess.run(program, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode != 0) == fails, found.stdout + found.stderr
    return found.stdout + found.stderr


def manifest(name: str, pods: int, line: str) -> dict[str, object]:
    body = job(name, pods, template=pod_spec(0, command=["sh", "-c", line], terminationGracePeriodSeconds=1))
    return {"apiVersion": "batch/v1", "kind": "Job", **body}


def test_a_job_is_applied_resized_followed_and_deleted(small_cluster: Cluster, kubectl: Kubectl) -> None:
    line = "echo pod $JOB_COMPLETION_INDEX; while [ ! -e $HOME/../../go ]; do sleep 0.1; done"
    kubectl("apply", "-f", "-", given=manifest("train", 2, line))
    small_cluster.wait(lambda: kubectl("get", "pods").count("Running") == 2, "two pods that run")
    assert "configured" in kubectl("apply", "-f", "-", given=manifest("train", 3, line))
    small_cluster.wait(lambda: kubectl("get", "pods").count("Running") == 3, "three pods that run")
    refusal = kubectl("apply", "-f", "-", given=manifest("train", 3, "other"), fails=True)
    assert "spec.template: Invalid value" in refusal
    (small_cluster.folder / "go").touch()
    kubectl("wait", "--for=condition=Complete", "job/train", "--timeout=100s")
    assert "3/3" in kubectl("get", "jobs")
    assert "pod 0" in kubectl("logs", "-l", "job-name=train", "--prefix")
    reported = kubectl("describe", "job", "train")
    for words in ("SuccessfulCreate", "Completed", "3 Succeeded", "job-controller"):
        assert words in reported
    kubectl("delete", "job", "train", "--timeout=100s")
    small_cluster.wait(lambda: not small_cluster.all(PODS), "the end of the pods")


def test_logs_are_followed_until_their_end(kubectl: Kubectl) -> None:
    line = "for i in 1 2 3; do echo line $i; sleep 0.2; done"
    kubectl("apply", "-f", "-", given=manifest("speaks", 1, line))
    kubectl("wait", "--for=condition=Ready", "pod", "-l", "job-name=speaks", "--timeout=100s")
    assert kubectl("logs", "-f", "job/speaks").count("line") == 3
    kubectl("delete", "job", "speaks")


def test_custom_resources_are_defined_explained_printed_and_applied(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=CRD)
    kubectl("wait", "--for=condition=Established", "crd/things.contract.fedl2.io", "--timeout=100s")
    one = thing()
    kubectl("apply", "-f", "-", given=one)
    head, row = kubectl("get", "things").splitlines()
    assert (head.split(), row.split()[:2]) == (["NAME", "SIZE", "READY"], ["a", "2"])
    assert "size\t<integer> -required-" in kubectl("explain", "thing.spec")
    one["spec"]["sise"] = 3
    assert 'unknown field "spec.sise"' in kubectl("apply", "-f", "-", given=one, fails=True)
    assert "size must not be below min" in kubectl("apply", "-f", "-", given=thing(min=9), fails=True)
    assert "conflict" in kubectl("apply", "--server-side", "-f", "-", given=thing(size=4), fails=True)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=thing(size=4))
    assert kubectl("get", "thing", "a", "-o", "jsonpath={.spec.size}") == "4"
    kubectl("delete", "things", "--all")


def test_a_watch_prints_what_changes(small_cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "seen", "--from-literal=a=1")
    words = ["kubectl", f"--kubeconfig={small_cluster.kubeconfig}", "get", "configmap", "seen", "-w"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline().split() == ["NAME", "DATA", "AGE"]
            assert watching.stdout.readline().split()[:2] == ["seen", "1"]
            kubectl("patch", "configmap", "seen", "-p", '{"data":{"b":"2"}}')
            assert watching.stdout.readline().split()[:2] == ["seen", "2"]
        finally:
            watching.kill()
    kubectl("delete", "configmap", "seen")


def test_a_quota_is_made_told_of_and_kept(small_cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "small")
    kubectl("create", "quota", "few", "--hard=pods=1", "-n", "small")
    kubectl("run", "one", "--image=none", "-n", "small")
    assert "exceeded quota: few" in kubectl("run", "two", "--image=none", "-n", "small", fails=True)
    small_cluster.wait(
        lambda: kubectl("describe", "quota", "-n", "small").split()[-3:] == ["pods", "1", "1"], "its use"
    )
    kubectl("delete", "namespace", "small", "--timeout=100s")
    small_cluster.wait(lambda: not small_cluster.all(PODS, "small"), "the end of what was in the namespace")


def test_rights_are_asked_for_and_kept(small_cluster: Cluster, kubectl: Kubectl) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    small_cluster.grant("reader", rules)
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "reader" in kubectl("auth", "whoami", user="reader")
    assert kubectl("auth", "can-i", "list", "pods", user="reader").strip() == "yes"
    assert kubectl("auth", "can-i", "delete", "pods", user="reader", fails=True).startswith("no")
    kubectl("get", "pods", user="reader")
    assert "Forbidden" in kubectl("get", "nodes", user="reader", fails=True)


def test_without_the_right_token_or_authority_there_is_no_answer(small_cluster: Cluster) -> None:
    address = f"--server={small_cluster.server.secure_address}"
    for more, wanted in (
        (["--insecure-skip-tls-verify", "--token=wrong"], "must be logged in"),
        (["--token=admin-token"], "certificate"),
    ):
        words = ["kubectl", "--kubeconfig=/dev/null", address, *more, "get", "pods"]
        found = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert found.returncode != 0
        assert wanted in found.stderr


def test_a_webhook_that_is_down_stops_writes_and_no_reads(small_cluster: Cluster, kubectl: Kubectl) -> None:
    def fault(asked: Asked) -> Fault | None:
        return webhook_down() if asked.writes and asked.resource == "configmaps" else None

    small_cluster.server.faults = fault
    try:
        assert "failed calling webhook" in kubectl("create", "configmap", "x", fails=True)
        kubectl("get", "configmaps")
    finally:
        small_cluster.server.faults = lambda asked: None


def test_a_node_is_drained(small_cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=manifest("stays", 2, "sleep 1000"))
    small_cluster.wait(lambda: kubectl("get", "pods").count("Running") == 2, "two pods that run")
    kubectl("drain", "node-a", "--force", "--timeout=100s")
    assert "SchedulingDisabled" in kubectl("get", "nodes")

    def moved() -> bool:
        on = [each["spec"].get("nodeName") for each in small_cluster.all(PODS) if each["status"]["phase"] == "Running"]
        return on == ["node-b", "node-b"]

    small_cluster.wait(moved, "both pods on the other node")
    kubectl("uncordon", "node-a")
    kubectl("delete", "job", "stays")
