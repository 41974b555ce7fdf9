"""Machine with one real agent, four cores and three GPUs on paper, whose processes can be found and killed by role."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from counted_training import lives, write_scripts

from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.errors import AgentUnreachable, JobRefused
from cluster_agent.jobs.client import JobClient
from elastic_runtime.launcher.job_folder import AGENT_MARK

GPUS = 3
CPU_MILLI = 4000
_POLL_SECONDS = 0.05
_CALL_SECONDS = 60.0
_NVML = f"""
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return {GPUS}
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}"
"""

_WITH_CONSTANTS = """
import policy_net.settings
policy_net.settings.CONSTANT = ""
from cluster_agent.cli import main
main()
"""


class NotInTime(Exception):
    """Something that had to happen did not; the message says what, and how all stood."""


class Machine:
    """A folder with an agent; used as a context, which leaves nothing running.

    Args:
        folder: is there, and is empty.
        patience_seconds: for everything that has to happen.
        settings: of the backend, beside those that are given here.

    Attributes:
        problems: what was seen that must never be, a line each.
    """

    def __init__(self, folder: Path, patience_seconds: float = 300.0, **settings: object) -> None:
        self.folder = folder
        self.jobs_folder = folder / "state" / "jobs"
        self.patience_seconds = patience_seconds
        self.socket = folder / "s" / "jobs.sock"
        self.launchers = Launchers(self.jobs_folder)
        self.problems: list[str] = []
        self._agent: subprocess.Popen[bytes] | None = None
        write_scripts(folder)
        (folder / "gpus").mkdir()
        (folder / "gpus" / "pynvml.py").write_text(_NVML, encoding="utf-8")
        backend: dict[str, object] = {
            "kind": "local",
            "cpu_milli": CPU_MILLI,
            "slot_seconds": 5.0,
            "debounce_seconds": 0.5,
            "grace_seconds": 2.0,
            "start_seconds": patience_seconds,
            "resize_seconds": patience_seconds,
            "socket": str(self.socket),
            **settings,
        }
        content: dict[str, object] = {
            "cluster": "machine",
            "state_dir": "state",
            "backend": backend,
            "policy": {"initial": "drf"},
        }
        content["guard"] = {"deadline_ms": 60_000}
        self.config = folder / "agent.yaml"
        self.config.write_text(yaml.safe_dump(content), encoding="utf-8")
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_for_doubles, daemon=True)

    def __enter__(self) -> Machine:
        self.start_agent()
        self.wait_for(self.answers, "the agent answers")
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._watch.join()
        self.kill_agent()
        for _ in range(3):  # a launcher that is killed may have just started something
            for number in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)

    def start_agent(self) -> None:
        """Start one, as a service manager does when the one before has died."""
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(self.folder / "gpus"), os.environ.get("PYTHONPATH", "")])
        )
        with (self.folder / "agent.log").open("ab") as log:
            command = [sys.executable, "-c", _WITH_CONSTANTS, "run", "--config", str(self.config)]
            self._agent = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)

    def kill_agent(self) -> None:
        """As the kernel would: no good-bye."""
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()

    @property
    def agent(self) -> int:
        """Its process number."""
        assert self._agent is not None
        return self._agent.pid

    def answers(self) -> bool:
        """Whether the agent does."""
        with suppress(AgentUnreachable):
            self.call("jobs", {})
            return True
        return False

    def call(self, method: str, content: dict[str, Any]) -> dict[str, Any]:
        """Ask the agent. Raises AgentUnreachable, JobRefused."""
        client = JobClient(self.socket, _CALL_SECONDS)
        return client.call(method, content)

    def persist(self, method: str, content: dict[str, Any]) -> None:
        """Ask until it was answered, as a user does; a job that is there already was taken before the answer was lost.

        Raises:
            NotInTime: nobody answers.
        """
        tried = False

        def asked() -> bool:
            nonlocal tried
            try:
                self.call(method, content)
            except AgentUnreachable:
                tried = True
                return False
            except JobRefused as error:
                if not (tried and method == "submit" and "already" in str(error)):
                    raise
            return True

        self.wait_for(asked, f"{method} is answered")

    def submit(self, content: dict[str, Any]) -> None:
        """Hand a job over, however often the agent dies meanwhile."""
        self.persist("submit", {"job": content, "folder": str(self.folder), "source": "it"})

    def facts(self, name: str) -> dict[str, Any]:
        """Of one job, as users see it; as good as none where nobody answers."""
        with suppress(AgentUnreachable, JobRefused):
            found: dict[str, Any] = self.call("jobs", {"name": name})["jobs"][0]
            return found
        return {"state": "", "workers": 0, "held": False, "note": ""}

    def processes(self, name: str = "") -> list[int]:
        """All of a job, or of all jobs, by the mark that they carry."""
        if name:
            return self.launchers.processes(name)
        beginning = f"{AGENT_MARK}={self.jobs_folder.absolute()}/".encode()
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _marked(path, beginning)]

    def process_of(self, name: str, role: str) -> int | None:
        """A living process of a job: its `launcher`, `coordinator`, first `server` or `worker`; or the `agent`."""
        if role == "agent":
            return self.agent
        if role == "launcher":
            return self.launchers.running(name) or None
        alive = set(self.processes(name))
        task = {"server": "ps-*", "worker": "worker-*"}.get(role, role)
        for log in sorted((self.jobs_folder / name / "logs").glob(f"{task}.log")):
            with suppress(OSError):
                numbers = re.findall(rb"^--- \S+ starts as process (\d+)$", log.read_bytes(), re.MULTILINE)
                if numbers and int(numbers[-1]) in alive:
                    return int(numbers[-1])
        return None

    def kill(self, name: str, role: str) -> bool:
        """SIGKILL one, if there is such a process; an agent is followed by another at once."""
        number = self.process_of(name, role)
        if number is None:
            return False
        if role == "agent":
            self.kill_agent()
            self.start_agent()
            return True
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def trains(self, name: str) -> bool:
        """Whether a process of a job's script makes steps."""
        before = {life.process: life.steps for life in lives(self.folder, name)}
        time.sleep(0.4)
        return any(life.steps > before.get(life.process, life.steps) for life in lives(self.folder, name))

    def wait_for(self, holds: Callable[[], bool], what: str) -> float:
        """Look until something holds; the seconds that it took.

        Raises:
            NotInTime: it never did.
        """
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > self.patience_seconds:
                with suppress(AgentUnreachable):
                    what += f"; jobs: {self.call('jobs', {})['jobs']}"
                raise NotInTime(f"waited {self.patience_seconds:g} s in vain: {what}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def _look_for_doubles(self) -> None:
        """All the time: no GPU has two holders, and no more processes live than there are cores for."""
        while not self._over.wait(_POLL_SECONDS):
            now = list(lives(self.folder))
            used = [gpu for life in now for gpu in life.gpus]
            if len(used) != len(set(used)):
                self._found(f"GPUs given twice: {sorted((life.process, life.gpus) for life in now)}")
            cores = sum(2500 if life.job.startswith("rival") else 1000 for life in now)
            if cores > CPU_MILLI:
                self._found(f"{cores} millicores given away: {sorted(life.process for life in now)}")

    def _found(self, line: str) -> None:
        if line not in self.problems:
            self.problems.append(line)


def _marked(process: Path, beginning: bytes) -> bool:
    with suppress(OSError):
        return any(entry.startswith(beginning) for entry in (process / "environ").read_bytes().split(b"\0"))
    return False
