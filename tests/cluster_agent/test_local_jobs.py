"""Real jobs on this machine: an agent decides, running jobs change their size, and neither loses the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import Program, wait_until

from cluster_agent.backends.local.scripts.script_folder import ScriptFolder
from cluster_agent.jobs.client import JobClient
from cluster_agent.recording.log_reading import log_files
from cluster_agent.recording.log_replay import Replayer, default_finder

pytestmark = pytest.mark.heavy

SCRIPT = """
import pathlib, sys, time, torch
import elastic_runtime as elastic

torch.manual_seed(0)
data, wanted = torch.randn(640, 32), torch.randint(0, 2, (640,))
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
job = elastic.join(model, elastic.SGD(lr=0.05), (data, wanted), global_batch=32, epochs=int(sys.argv[1]), seed=0)
let_go = pathlib.Path(sys.argv[2])
for batch in job:
    inputs, labels = batch.data
    if not let_go.exists():
        time.sleep(0.25)  # so that it is there for all that is done to it
    job.step(torch.nn.functional.cross_entropy(model(inputs), labels))
if job.finished and job.is_first:
    print("trained", job.progress.step, flush=True)
"""


OWN_LOOP = """
import pathlib, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
import elastic_runtime as elastic

torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 32), torch.randint(0, 2, (640,)))
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(data, batch_size=32, shuffle=True)
model, optimizer, loader = elastic.prepare(model, optimizer, loader)
let_go = pathlib.Path(sys.argv[2])
for epoch in elastic.epochs(int(sys.argv[1])):
    for inputs, labels in loader:
        if not let_go.exists():
            time.sleep(0.25)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if elastic.is_first:
    print("trained", loader.step, flush=True)
"""


def training(epochs: int, name: str) -> list[str]:
    """The command of a job, which takes its time until it is let go."""
    return ["python", "train.py", str(epochs), f"go-{name}"]


class Machine:
    """A folder with one agent over this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s" / "jobs.sock"
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        self.config = folder / "agent.yaml"
        backend = {
            "kind": "local",
            "cpu_milli": 3000,
            "slot_seconds": 5.0,
            "debounce_seconds": 0.5,
            "start_seconds": 300.0,
            "resize_seconds": 300.0,
            "socket": str(self.socket),
        }
        settings = {"cluster": "machine", "state_dir": "state", "backend": backend, "policy": {"initial": "drf"}}
        self.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.programs: list[Program] = []

    def start(self) -> Program:
        program = Program("cluster_agent.cli", "run", self.config)
        self.programs.append(program)
        return program

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cluster_agent.cli", *words],
            cwd=self.folder,
            env=os.environ | {"CLUSTER_AGENT_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            check=False,
        )

    def job(self, name: str) -> dict[str, Any]:
        client = JobClient(self.socket, timeout_seconds=100.0)
        facts: dict[str, Any] = client.call("jobs", {"name": name})["jobs"][0]
        return facts

    def let_go(self, name: str) -> None:
        """Have a training come to its end without delay."""
        (self.folder / f"go-{name}").touch()

    def close(self) -> None:
        for facts in json.loads(self.ask("jobs", "-o", "json").stdout or "[]"):
            if not facts["ended"]:
                self.ask("cancel", facts["name"])
                wait_until(lambda name=facts["name"]: self.job(name)["ended"], "the job is cancelled")  # type: ignore[misc]
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_jobs_are_shared_out_resized_live_survive_their_agent_and_every_decision_replays(machine: Machine) -> None:
    agent = machine.start()
    wait_until(machine.socket.exists, "the agent listens")
    long = machine.ask("submit", "--name", "long", "--epochs", "60", "--ps", "1-2", "--", *training(60, "long"))
    assert long.returncode == 0, long.stderr
    wait_until(lambda: machine.job("long")["workers"] == 2, "alone it has all there is")
    short = machine.ask("submit", "--name", "short", "--epochs", "30", "--ps", "1-2", "--", *training(30, "short"))
    assert short.returncode == 0, short.stderr
    wait_until(lambda: machine.job("short")["workers"] == 1, "the other job gets its share")
    assert machine.job("long")["workers"] == 1, "it gave some back, and trains on"
    agent.kill()
    answer = machine.ask("jobs")
    assert answer.returncode == 3
    assert "no agent answers there" in answer.stderr
    machine.start()
    wait_until(lambda: machine.ask("jobs").returncode == 0, "the next agent answers")
    machine.let_go("short")
    wait_until(lambda: machine.job("short")["ended"], "the short job ends")
    assert machine.job("short")["state"] == "done"
    assert machine.job("short")["samples"] == 30 * 640
    wait_until(lambda: machine.job("long")["workers"] == 2, "what it had is the other's again")
    machine.let_go("long")
    wait_until(lambda: machine.job("long")["ended"], "the long job ends")
    facts = machine.job("long")
    assert (facts["state"], facts["samples"]) == ("done", 60 * 640)
    logs = machine.ask("logs", "long")
    assert "trained 1200" in logs.stdout
    for program in machine.programs[1:]:
        program.stop()
    replayer = Replayer(default_finder(machine.folder / "state", []))
    for path in log_files(machine.folder / "state"):
        for _ in replayer.replay(path):
            pass
    assert replayer.result.decisions >= 3, "one job alone, both, one alone again; more where slots pass meanwhile"
    assert not replayer.result.different


PLAIN = """
import os, pathlib, sys, time
print("cores", len(os.sched_getaffinity(0)), "threads", os.environ["OMP_NUM_THREADS"], flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.1)
print("was let go", flush=True)
"""


@pytest.mark.parametrize("script", [SCRIPT, OWN_LOOP], ids=["join", "prepare"])
def test_scripts_and_all_reduce_jobs_share_the_machine_and_survive_their_agent(machine: Machine, script: str) -> None:
    (machine.folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    (machine.folder / "train.py").write_text(script, encoding="utf-8")
    content = {"name": "ring", "modelType": "mlp", "communication": "AllReduce", "work": {"epochs": 40}}
    content |= {"script": "train.py", "args": training(40, "ring")[2:], "worker": {"max": 2}}
    (machine.folder / "ring.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    agent = machine.start()
    wait_until(machine.socket.exists, "the agent listens")
    assert machine.ask("submit", "ring.yaml").returncode == 0
    wait_until(lambda: machine.job("ring")["workers"] == 2, "alone it has all that it takes")
    plain = machine.ask("submit", "--name", "plain", "--cpu", "2", "--", "python", "plain.py")
    assert plain.returncode == 0, plain.stderr
    wait_until(lambda: machine.job("plain")["workers"] == 1, "the script runs")
    wait_until(lambda: machine.job("ring")["workers"] == 1, "the other one trains on with less")
    agent.kill()
    machine.start()
    wait_until(lambda: machine.ask("jobs").returncode == 0, "the next agent answers")
    assert machine.job("plain")["state"] == "running"
    (machine.folder / "go").touch()
    wait_until(lambda: machine.job("plain")["ended"], "the script ends")
    assert machine.job("plain")["state"] == "done"
    assert machine.ask("logs", "plain").stdout.count("was let go") == 1
    wait_until(lambda: machine.job("ring")["workers"] == 2, "what the script had is the other's again")
    machine.let_go("ring")
    wait_until(lambda: machine.job("ring")["ended"], "the ring ends")
    facts = machine.job("ring")
    assert (facts["state"], facts["samples"]) == ("done", 40 * 640)
    assert facts["stallSeconds"] > 0.0
    changes = ScriptFolder(machine.folder / "state/jobs/ring").changes()
    assert [(change.before, change.workers) for change in changes] == [(2, 1), (1, 2)]
    assert all(change.done and change.stall_seconds > 0.0 for change in changes)
    assert sum(change.stall_seconds for change in changes) == pytest.approx(facts["stallSeconds"])
    assert "trained 800" in machine.ask("logs", "ring").stdout
