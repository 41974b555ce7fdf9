"""An agent over this machine for the benchmark, the jobs that it is given, and what it costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient
from cluster_agent.recording.decision_log import log_files, read_log
from deploy.local.processes import DemoFailed, Processes

COMMAND = Path(sys.executable).with_name("cluster-agent")
PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.5

FIXED = """
import time
while True:
    time.sleep(1.0)
"""
ELASTIC = """
import time, torch
import elastic_runtime as elastic

torch.manual_seed(0)
data, wanted = torch.randn(640, 8), torch.randint(0, 2, (640,))
model = torch.nn.Linear(8, 2)
job = elastic.join(model, elastic.SGD(lr=0.05), (data, wanted), global_batch=32, epochs=100_000, seed=0)
for batch in job:
    inputs, labels = batch.data
    time.sleep(1.0)
    job.step(torch.nn.functional.cross_entropy(model(inputs), labels))
"""


@dataclass(frozen=True, slots=True)
class Agent:
    """One that runs.

    Attributes:
        folder: with its scripts; its state is below.
        client: asks it.
        pid: of its process.
    """

    folder: Path
    client: JobClient
    pid: int

    @property
    def socket(self) -> Path:
        """Where it answers."""
        return self.folder / "s" / "jobs.sock"

    def command(self, *words: str) -> tuple[float, float]:
        """Run one of its commands as a user does; seconds from the process's start to its end, and of processor time.

        Raises:
            DemoFailed: it failed.
        """
        began, used = time.perf_counter(), _children_cpu_seconds()
        done = subprocess.run(
            [str(COMMAND), *words], cwd=self.folder, capture_output=True, text=True, check=False, env=self._environment
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            raise DemoFailed(f"cluster-agent {words[0]}: {done.stderr.strip()}")
        return seconds, _children_cpu_seconds() - used

    def submit(self, name: str, script: str, **more: object) -> None:
        """Hand a job over, by the socket."""
        job = {"name": name, "modelType": script, "script": f"{script}.py", **more}
        self.client.call("submit", {"job": job, "folder": str(self.folder), "source": name})

    def jobs(self) -> list[dict[str, Any]]:
        """All of them."""
        found: list[dict[str, Any]] = self.client.call("jobs", {})["jobs"]
        return found

    def cpu_seconds(self) -> float:
        """That it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def decisions(self) -> list[dict[str, Any]]:
        """That it has logged so far."""
        with suppress(AgentError):
            return [line for path in log_files(self.folder / "state") for line in read_log(path)]
        return []

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"CLUSTER_AGENT_SOCKET": str(self.socket)}


@contextmanager
def agent(folder: Path, policy: str, cpu_milli: int, pace_seconds: tuple[float, float]) -> Iterator[Agent]:
    """One over so many millicores, whether the machine has them or not: these jobs sleep; all are ended at the end.

    Args:
        folder: is made.
        policy: that decides.
        cpu_milli: that its jobs may have.
        pace_seconds: of decisions: the slot, and the least time between two.
    """
    folder.mkdir(parents=True)
    (folder / "fixed.py").write_text(FIXED, encoding="utf-8")
    (folder / "elastic.py").write_text(ELASTIC, encoding="utf-8")
    slot_seconds, debounce_seconds = pace_seconds
    backend = {"kind": "local", "cpu_milli": cpu_milli, "socket": "s/jobs.sock", "start_seconds": PATIENCE_SECONDS}
    backend |= {"slot_seconds": slot_seconds, "debounce_seconds": debounce_seconds}
    content = {"cluster": "this-machine", "state_dir": "state", "backend": backend, "policy": {"initial": policy}}
    config = folder / "agent.yaml"
    config.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    with Processes(folder) as processes:
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(config)])
        running = Agent(folder, JobClient(folder / "s" / "jobs.sock", 60.0), processes.pid_of("agent"))

        def answers() -> bool:
            processes.check()
            return _answers(running)

        wait_for(answers, "the agent does not answer")
        try:
            yield running
        finally:
            _end_jobs(running)


def wait_for(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Look again and again until something holds.

    Raises:
        DemoFailed: it never did.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} after {seconds:g} s")
        time.sleep(_LOOK_SECONDS)


def _children_cpu_seconds() -> float:
    """Of all that have ended, which the agent has not."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _answers(agent: Agent) -> bool:
    try:
        agent.jobs()
    except AgentError:
        return False
    return True


def _end_jobs(agent: Agent) -> None:
    """Leave none behind: jobs outlive their agent."""
    with suppress(AgentError):
        waiting = [job for job in agent.jobs() if not job["ended"]]
        for job in _those_that_wait_first(waiting):
            agent.client.call("cancel", {"name": job["name"]})
        wait_for(lambda: all(job["ended"] for job in agent.jobs()), "not all jobs have ended")


def _those_that_wait_first(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a job that ends gives back must not start another one."""
    return sorted(jobs, key=lambda job: job["state"] not in ("queued", "held"))
