"""Real jobs for the end-to-end tests: the commands as users type them, the example as it ships."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import job_facts

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "docs" / "examples" / "digits" / "train.py"
DEADLINE_SECONDS = 200.0


class RealJob:
    """One job, started by `elastic-run` in a process of its own, and asked by further ones."""

    def __init__(self, jobs: Path, name: str) -> None:
        self.folder = jobs / name
        self.name = name
        self._jobs = jobs
        self._output = (jobs / f"{name}.out").open("ab+")
        self.launcher: subprocess.Popen[bytes] | None = None
        self._furthest = (0, 0)
        """Generation and step of the status that `steps_on` gave last."""

    def __enter__(self) -> "RealJob":
        return self

    def __exit__(self, *_: object) -> None:
        if self.launcher is not None and self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()
        self._output.close()

    def launch(self, *words: str) -> None:
        """Type a command that stays: a start, or a resumption."""
        command = [sys.executable, "-m", "elastic_runtime.cli", *words]
        environment = {**os.environ, "ELASTIC_JOBS": str(self._jobs), "PYTHONUNBUFFERED": "1"}
        self.launcher = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self._output, stderr=subprocess.STDOUT
        )

    def ask(self, command: str, *words: str, code: int = 0) -> Any:
        """Type a command that answers; its JSON."""
        typed = [sys.executable, "-m", "elastic_runtime.cli", command, self.name, *words, "-o", "json"]
        environment = {**os.environ, "ELASTIC_JOBS": str(self._jobs)}
        done = subprocess.run(
            typed, check=False, cwd=ROOT, env=environment, capture_output=True, timeout=DEADLINE_SECONDS
        )
        assert done.returncode == code, done.stderr.decode() + self.output()
        return json.loads(done.stdout) if code == 0 else done.stderr.decode()

    def wait_for(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the status until it holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                status = job_facts(JobFolder(self.folder), timeout_seconds=DEADLINE_SECONDS)
            except ElasticError:
                status = {}  # it is starting, or its coordinator is
            if status and holds(status):
                return status
            time.sleep(0.1)
        raise AssertionError(f"no {what} within {DEADLINE_SECONDS:g} s: {status}\n{self.output()}")

    def steps_on(self, steps: int = 20) -> dict[str, Any]:
        """Wait until so many more steps are done."""
        before = self.wait_for(
            "training", lambda status: status["phase"] == "running" and status["size"]["workers"] > 0
        )
        # A coordinator that has just started tells a step of its journal until it hears its workers.
        _, step = max((before["generation"], before["step"]), self._furthest)
        goal = step + steps
        after = self.wait_for(f"step {goal}", lambda status: status["phase"] == "running" and status["step"] >= goal)
        self._furthest = (after["generation"], after["step"])
        return after

    def pid_of(self, task: str) -> int:
        """The newest process of a task, or of the coordinator."""
        log = (self.folder / "logs" / f"{task}.log").read_text(encoding="utf-8")
        return int(re.findall(rf"^--- {task} starts as process (\d+)$", log, re.MULTILINE)[-1])

    def kill(self, task: str) -> None:
        """SIGKILL."""
        os.kill(self.pid_of(task), signal.SIGKILL)

    def members(self, status: dict[str, Any]) -> dict[str, list[str]]:
        """Tasks that are part of the job's work, by role."""
        tasks = [task for task in status["tasks"] if task["state"] == "member"]
        return {role: [task["task"] for task in tasks if task["role"] == role] for role in ("server", "worker")}

    def processes(self) -> list[int]:
        """Processes that know the job's token file: all that were started for it."""
        needle = str(self.folder / "token").encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    known = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if needle in known:
                    found.append(int(entry.name))
        return found

    def end(self) -> int:
        """Wait for the launcher's end and for that of all its processes; its exit code."""
        assert self.launcher is not None
        code = self.launcher.wait(DEADLINE_SECONDS)
        self.leaves_nobody()
        return code

    def leaves_nobody(self) -> None:
        """Wait until no process is left: one that was killed ends when it is next given a processor."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.processes():
            assert time.monotonic() < deadline, "it left processes behind"
            time.sleep(0.1)

    def output(self) -> str:
        """What the launchers wrote."""
        return (self._jobs / f"{self.name}.out").read_text(encoding="utf-8")
