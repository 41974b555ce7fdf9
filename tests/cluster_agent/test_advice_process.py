"""The agent's own command on a Kubernetes cluster: it advises, survives its server, and leaves nothing running."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from apiserver.serving import Fault
from kube_cluster import KubeCluster, kube_cluster

pytestmark = pytest.mark.heavy
DEADLINE_SECONDS = 120.0


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def config(folder: Path, cluster: KubeCluster, **more: str) -> Path:
    folder.mkdir(exist_ok=True)
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": cluster.server.address}}],
        "users": [{"name": "u", "user": {"token": "agent"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig.yaml").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    backend = {"kind": "kubernetes", "kubeconfig": "kubeconfig.yaml", "slot_seconds": 1.0, "debounce_seconds": 0.1}
    backend |= more
    agent = {"cluster": "gpu-east", "state_dir": "state", "backend": backend, "policy": {"initial": "set"}}
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(agent), encoding="utf-8")
    return path


def start(path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "cluster_agent.cli", "run", "--config", str(path)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def advised(cluster: KubeCluster, name: str) -> int | None:
    found = cluster.status_of(name).get("recommendation")
    return None if found is None else int(found["workers"])


def test_an_agent_advises_outlives_its_server_and_ends_in_good_order(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a", gpus=4)
        cluster.job("alone", workers=1, on="a")
        cluster.target("alone", most=4)
        path = config(tmp_path, cluster)
        process = start(path)
        try:
            wait_for(lambda: advised(cluster, "alone") is not None)
            first = advised(cluster, "alone")
            assert first is not None
            assert 1 <= first <= 4
            cluster.server.faults = lambda asked: Fault(code=503)
            cluster.server.close_watches()
            time.sleep(1.0)
            cluster.server.faults = lambda asked: None
            cluster.job("later", workers=1, on="a")
            cluster.target("later", most=4)
            wait_for(lambda: advised(cluster, "later") is not None)
            together = sum(advised(cluster, name) or 0 for name in ("alone", "later"))
            assert 1 <= together <= 4, "four GPUs"
        finally:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, output
        summary = json.loads((tmp_path / "state" / "summary.json").read_text(encoding="utf-8"))
        assert summary["decisions"] >= 2
        logged = subprocess.run(
            [sys.executable, "-m", "cluster_agent.cli", "replay-log", str(tmp_path / "state" / "decisions.jsonl")],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        assert logged.returncode == 0, logged.stderr


def test_an_agent_killed_at_any_moment_and_started_again_advises_the_same_cluster(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a", gpus=4)
        cluster.job("alone", workers=1, on="a")
        cluster.target("alone", most=4)
        path = config(tmp_path, cluster)
        for _ in range(2):
            process = start(path)
            wait_for(lambda: advised(cluster, "alone") is not None)
            process.kill()
            process.communicate(timeout=DEADLINE_SECONDS)
        cluster.job("later", workers=1, on="a")
        cluster.target("later", most=4)
        process = start(path)
        try:
            wait_for(lambda: advised(cluster, "later") is not None)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=DEADLINE_SECONDS)


def test_credentials_that_cannot_be_used_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        path = config(tmp_path, cluster)
    (tmp_path / "kubeconfig.yaml").write_text("{}", encoding="utf-8")
    process = start(path)
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 2, output
    assert f"{tmp_path / 'kubeconfig.yaml'} cannot be used" in output
    assert "Traceback" not in output


def test_of_two_agents_one_acts_and_a_frozen_one_is_followed_and_writes_no_more(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a", gpus=4)
        cluster.job("alone", workers=1, on="a")
        cluster.target("alone", most=4)
        cluster.server.tokens |= {"one": "one", "other": "other"}
        processes = {}
        try:
            for name in ("one", "other"):
                path = config(tmp_path / name, cluster, lease_namespace="fedl2")
                kubeconfig = (tmp_path / name / "kubeconfig.yaml").read_text(encoding="utf-8")
                (tmp_path / name / "kubeconfig.yaml").write_text(
                    kubeconfig.replace("token: agent", f"token: {name}"), encoding="utf-8"
                )
                processes[name] = start(path)
            wait_for(lambda: bool(advisers(cluster)))
            (first,) = advisers(cluster)
            (second,) = {"one", "other"} - {first}
            processes[first].send_signal(signal.SIGSTOP)
            cluster.job("later", workers=1, on="a")
            cluster.target("later", most=4)
            wait_for(lambda: advised(cluster, "later") is not None)
            assert advisers(cluster) == [first, second]
            before = epoch(cluster)
            processes[first].send_signal(signal.SIGCONT)
            cluster.job("last", workers=1, on="a")
            cluster.target("last", most=4)
            wait_for(lambda: advised(cluster, "last") is not None)
            time.sleep(1.0)
            assert advisers(cluster)[-1] == second, "who woke up wrote again"
            assert epoch(cluster) == before
            # Who ends in good order gives the lease back, and is followed at once.
            processes[second].send_signal(signal.SIGTERM)
            processes[second].wait(DEADLINE_SECONDS)
            cluster.job("now", workers=1, on="a")
            cluster.target("now", most=4)
            wait_for(lambda: advised(cluster, "now") is not None)
            assert advisers(cluster)[-1] == first
            assert epoch(cluster) > before
        finally:
            for process in processes.values():
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.communicate(timeout=DEADLINE_SECONDS)


def advisers(cluster: KubeCluster) -> list[str]:
    """Who wrote advice, in turn."""
    wrote = [asked.user for asked in list(cluster.server.asked) if asked.verb == "patch"]
    return [name for number, name in enumerate(wrote) if not number or wrote[number - 1] != name]


def epoch(cluster: KubeCluster) -> int:
    leases = cluster.server.call(lambda: cluster.server.store.get("leases.coordination.k8s.io", "fedl2", "fedl2-agent"))
    return int(leases["metadata"]["annotations"]["fedl2.io/epoch"])
