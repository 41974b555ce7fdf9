"""The agent's own command where it sets sizes: killed at any moment, it leaves what the next one goes on with."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kube_cluster import KubeCluster, kube_cluster

pytestmark = pytest.mark.heavy
DEADLINE_SECONDS = 120.0
GPUS = 4
JOBS = ("runs", "waits", "comes")


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def config(folder: Path, cluster: KubeCluster) -> Path:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": cluster.server.address}}],
        "users": [{"name": "u", "user": {"token": "auto"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig.yaml").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    backend = {
        "kind": "kubernetes",
        "kubeconfig": "kubeconfig.yaml",
        "slot_seconds": 1.0,
        "debounce_seconds": 0.1,
        "limits": {"changes_per_hour": 3600, "min_shares": {"team": 0.5}},
    }
    agent = {"cluster": "gpu-east", "state_dir": "state", "backend": backend, "policy": {"initial": "set"}}
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(agent), encoding="utf-8")
    return path


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "cluster_agent.cli", "run", "--config", str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_SECONDS)


class Controller:
    """Follows sizes with pods, as the cluster's own controllers do, and notes the most GPUs that were asked for."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster, self.most, self.stopping = cluster, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> "Controller":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join(DEADLINE_SECONDS)

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            self.most = max(self.most, sum(self.cluster.size(name) for name in JOBS))
            for name in JOBS:
                self.cluster.follow(name)


def test_an_agent_killed_in_between_is_followed_by_one_that_finds_all_as_it_was(tmp_path: Path) -> None:
    with kube_cluster() as cluster:
        cluster.node("a", gpus=GPUS)
        cluster.opt_in()
        for name in JOBS:
            cluster.job(name, 1, on="a", suspend=name != "runs")
            cluster.target(name, updateMode="Auto", max=4)
        path = config(tmp_path, cluster)
        with Controller(cluster) as controller:
            for _ in range(2):
                before = len(cluster.writes("auto"))
                with running(path) as process:
                    wait_for(lambda before=before: len(cluster.writes("auto")) > before)  # type: ignore[misc]
                    process.send_signal(signal.SIGKILL)
                cluster.target(f"none-{before}")  # something for the next one to say
            before = len(cluster.writes("auto"))
            with running(path) as process:
                wait_for(lambda: len(cluster.writes("auto")) > before)
                wait_for(lambda: all(cluster.size(name) for name in JOBS))
                wait_for(lambda: all("allocation" in cluster.status_of(name) for name in ("waits", "comes")))
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=DEADLINE_SECONDS)
                assert process.returncode == 0, output
        assert controller.most <= GPUS
        allocation = cluster.status_of("waits")["allocation"]
        assert allocation["policyVersion"] == "set"
        lines = (tmp_path / "state" / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
        numbers = {json.loads(line).get("number") for line in lines}
        assert allocation["decisionId"] in numbers, "the log has the decision that the status names"
