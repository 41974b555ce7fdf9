"""An agent shares the GPUs of this machine out: each worker sees its own, and a job without one sees none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import Program, wait_until

from cluster_agent.backends.local.machine_shares import gpus_here
from cluster_agent.jobs.client import JobClient

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
PICTURES = Path(__file__).with_name("train_pictures.py")
PLAIN = "import os, torch; print('sees', torch.cuda.device_count(), repr(os.environ.get('CUDA_VISIBLE_DEVICES')))"


class GpuMachine:
    """A folder with one agent over this machine, of whose GPUs it may give one away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "s" / "jobs.sock"
        times = {"slot_seconds": 5.0, "debounce_seconds": 0.5, "start_seconds": 300.0, "resize_seconds": 300.0}
        backend = {"kind": "local", "socket": str(self.socket), **times}
        config = folder / "agent.yaml"
        settings = {"cluster": "machine", "state_dir": "state", "backend": backend, "policy": {"initial": "set-taught"}}
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
        self.agent = Program("cluster_agent.cli", "run", config)
        wait_until(self.socket.exists, "the agent listens")

    def type(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cluster_agent.cli", *words],
            cwd=self.folder,
            env=os.environ | {"CLUSTER_AGENT_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name: str, epochs: int, **more: Any) -> None:
        content = {
            "name": name,
            "modelType": "pictures",
            "work": {"epochs": epochs},
            "worker": {"min": 1, "max": 1, "cpu": 1, "gpu": 1},
            "script": str(PICTURES),
            "args": [str(epochs), str(self.folder / f"go-{name}")],
            **more,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        self.type("submit", str(path))

    def job(self, name: str) -> dict[str, Any]:
        """What is known of a job; at no look have jobs more GPUs than there are."""
        client = JobClient(self.socket, timeout_seconds=100.0)
        jobs: list[dict[str, Any]] = client.call("jobs", {})["jobs"]
        assert sum(job["workers"] for job in jobs if job["name"] != "plain") <= len(gpus_here(os.environ)), jobs
        return next(job for job in jobs if job["name"] == name)

    def has_steps(self, name: str, steps: int) -> None:
        wait_until(lambda: self.job(name)["samples"] >= 128 * steps, f"{name} trains")

    def let_go(self, name: str) -> None:
        (self.folder / f"go-{name}").touch()
        self.ended(name)

    def ended(self, name: str) -> None:
        wait_until(lambda: self.job(name)["ended"], f"{name} ends", 400.0)
        assert self.job(name)["state"] == "done", self.type("logs", name)

    def close(self) -> None:
        for facts in json.loads(self.type("jobs", "-o", "json")):
            if not facts["ended"]:
                self.type("cancel", facts["name"])
                wait_until(lambda name=facts["name"]: self.job(name)["ended"], "it is cancelled")  # type: ignore[misc]
        self.agent.stop()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[GpuMachine]:
    machine = GpuMachine(tmp_path)
    yield machine
    machine.close()


def test_jobs_take_turns_on_a_gpu_in_all_kinds_of_training(machine: GpuMachine) -> None:
    """All under one name, too: each kind's speed is known for itself."""
    mine = gpus_here(os.environ)
    assert mine
    assert all(gpu.startswith("GPU-") for gpu in mine)
    machine.submit("servers", 150, worker={"min": len(mine), "max": len(mine), "cpu": 0.5, "gpu": 1})
    machine.has_steps("servers", 20)
    ring = {"min": len(mine), "max": len(mine), "cpu": 0.5, "gpu": 1}
    machine.submit("ring", 150, communication="AllReduce", worker=ring)
    machine.submit("plain", 1, script="plain.py", args=[], elastic=False, worker={"replicas": 1, "cpu": 0.5})
    machine.ended("plain")
    assert re.search(r"sees 0 ''", machine.type("logs", "plain"))

    machine.type("suspend", "servers")
    machine.has_steps("ring", 20)
    machine.type("suspend", "ring")
    machine.type("resume", "servers")
    machine.has_steps("servers", 40)
    machine.let_go("servers")
    machine.type("resume", "ring")
    machine.let_go("ring")
    for name in ("servers", "ring"):
        said = re.search(r"trained 1200 right (\d\.\d+) gpus 1 seen (\S+)", machine.type("logs", name))
        assert said is not None, machine.type("logs", name)
        assert float(said[1]) > 0.8
        assert said[2] in mine
