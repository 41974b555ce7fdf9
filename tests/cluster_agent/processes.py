"""Real `cluster-agent run` and `global-learner serve` processes for tests, ended with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from learner_process import FORKS, ForkedProgram, answered
from reserved_port import ReservedPort

from cluster_agent.recording.log_reading import CURRENT, closed_files, read_log
from deploy.demonstration.frame import LearnerWatch
from global_learner.operator_socket import OPERATOR_SOCKET, SocketAddress
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import PolicySpec

_SLOT_SECONDS = 1200.0
PATIENCE_SECONDS = 150.0
ENDLESS = 1000
"""Episodes of an agent that goes on until it is told to stop, however slow the test is that does something to it."""
SPEC = PolicySpec(jobs_per_batch=8, type_columns=12, hidden=(16,))


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Look again and again until something holds; an AssertionError if it never does."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # to look costs what is looked at its processor


class Program:
    """One process; its output goes to a file.

    Args:
        forked: from a process that has imported the module, where that can be.
    """

    process: subprocess.Popen[bytes] | ForkedProgram

    def __init__(self, module: str, command: str, config: Path, *, forked: bool = False) -> None:
        self.output = config.with_suffix(".log")
        self.output.touch()  # a forked process opens it only once it runs, and a test may look before
        if forked and FORKS:
            self.process = ForkedProgram(module, [command, "--config", str(config)], self.output)
            return
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with self.output.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, command, "--config", str(config)],
                stdout=stream,
                stderr=stream,
                env=environment,
            )

    def kill(self) -> None:
        """As the kernel would: no good-bye."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its own end; its exit code."""
        return self.process.wait(PATIENCE_SECONDS)


class Fleet:
    """A folder with one learner and any number of agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self._sockets: list[SocketAddress] = []
        self._reserved = ReservedPort()
        self.port = self._reserved.port
        self.policy = folder / "v1.safetensors"
        write_policy_file(self.policy, PolicyFile(SPEC, initial_weights(SPEC, seed=1)))

    def start_learner(self, **changes: object) -> Program:
        """Start or restart it, on the same port."""
        content: dict[str, Any] = {
            "state_dir": "learner",
            "initial_policy": self.policy.name,
            "listen": f"127.0.0.1:{self.port}",
            "port_file": "port.json",
            "optimizer": {"units": "weights"},  # agents learn from what decisions bring, as tests last seconds
            "publish": {"every_steps": 20, "auto_assign": True},
            "scores": {"enabled": False},
            "telemetry": {"http_listen": None, "log_level": "warning"},
        }
        port_file = self.folder / "port.json"
        port_file.unlink(missing_ok=True)
        learner = self._start("global_learner.cli", "serve", "learner", content | changes)
        wait_until(lambda: port_file.exists() or learner.process.poll() is not None, "learner started or ended")
        assert port_file.exists(), learner.output.read_text()
        return learner

    def watch(self) -> LearnerWatch:
        """The learner as its own user sees it; needs it to have started."""
        self._sockets.append(SocketAddress(self.folder / "learner" / OPERATOR_SOCKET))
        return LearnerWatch(self._sockets[-1].target)

    def start_agent(
        self, cluster: str, *, slot_wall_seconds: float = 0.03, episodes: int = 1, **changes: object
    ) -> Program:
        """Start or restart an agent on twelve generated jobs, 30 ms a slot unless the changes say otherwise."""
        content: dict[str, Any] = {
            "cluster": cluster,
            "state_dir": cluster,
            "backend": {
                "workloads": [{"source": "dl2:jobs=12,seed=3"}],
                "episodes": episodes,
                "environment": {"nodes": 12},
                "pace": {"kind": "scaled", "speedup": _SLOT_SECONDS / slot_wall_seconds},
                "baseline": episodes == 1,
            },
            "policy": {"initial": "drf"},
            # A busy machine is no fault of a policy's.
            "guard": {"deadline_ms": 1000 * PATIENCE_SECONDS},
            "learning": {"source": "live", "flush_seconds": PATIENCE_SECONDS},
            # On a busy machine tests take longer, and versions are published meanwhile: all are there to be replayed.
            "decision_log": {"keep_policies": 1000},
            "telemetry": {"log_level": "warning"},
        }
        return self._start("cluster_agent.cli", "run", cluster, content | changes)

    def learning(self) -> dict[str, object]:
        """Changes for an agent that learns with this fleet's learner."""
        retry = {"initial_seconds": 0.05, "maximum_seconds": 0.5, "call_seconds": 5.0}
        return {
            "learner": {"address": f"127.0.0.1:{self.port}", "heartbeat_seconds": 0.1, "retry": retry},
            "policy": {"mode": "sample", "exploration": 0.1},
        }

    def decisions(self, cluster: str) -> list[dict[str, Any]]:
        """What the agent logged so far."""
        folder = self.folder / cluster
        if not (folder / CURRENT).exists():
            return []
        return [line for path in (*closed_files(folder), folder / CURRENT) for line in read_log(path)]

    def summary(self, cluster: str) -> dict[str, Any]:
        """What the agent left at its end."""
        content: dict[str, Any] = json.loads((self.folder / cluster / "summary.json").read_text())
        return content

    def close(self) -> None:
        """End what still runs."""
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()
        self._reserved.close()
        for socket in self._sockets:
            socket.close()

    def _start(self, module: str, command: str, name: str, content: dict[str, Any]) -> Program:
        config = self.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(content))
        simulated = content.get("backend", {}).get("kind") != "local"
        self.programs.append(Program(module, command, config, forked=simulated))
        return self.programs[-1]


def same_states(decisions: list[dict[str, Any]]) -> list[str]:
    """Digests of the states decided upon, one that was decided twice in a row only once."""
    digests = [line["state_digest"] for line in decisions]
    return [digest for index, digest in enumerate(digests) if index == 0 or digest != digests[index - 1]]


def is_rising(numbers: list[int]) -> bool:
    """Whether every number is one more than the one before."""
    return bool(np.all(np.diff(numbers) == 1))


def made_again(log: Path) -> dict[str, Any]:
    """What `cluster-agent replay-log` says of a log."""
    imports = ("cluster_agent.cli", "cluster_agent.recording.log_replay")
    done = answered("cluster_agent.cli", "replay-log", str(log), "-o", "json", imports=imports)
    assert done.returncode == 0, done.stderr + done.stdout
    content: dict[str, Any] = json.loads(done.stdout)
    return content
