"""Tasks started cold and warm, for tests; run as a program it is the launcher: a command is a line of JSON each way.

A process of its own, as whoever forks tasks becomes the parent of all orphans, also of a test's.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_process import TaskProcess
from elastic_runtime.launcher.warm import wire
from elastic_runtime.launcher.warm.starter import WarmStarter

DEADLINE_SECONDS = 200.0
_LOG_BYTES = 1 << 20


def wait_for(holds: Callable[[], object]) -> None:
    """Until it holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@dataclass(frozen=True)
class Ended:
    """How a task ended, and what it wrote."""

    code: int
    out: str
    errors: str
    warm: bool


class Tasks:
    """A launcher in a process of its own.

    Args:
        folder: where its tasks run, with the job's script `train.py`.
        environment: beside this process's.
        fork_seconds: see `LauncherSettings`.
    """

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, fork_seconds: float = 100.0) -> None:
        self.folder = folder
        script = folder / "train.py"
        if not script.exists():
            script.write_text("import torch\n", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(folder), str(fork_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **(environment or {})},
        )

    def __enter__(self) -> "Tasks":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, **command: Any) -> Any:
        """Have the launcher do something; its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the launcher died"
        return json.loads(line)

    def run(
        self,
        source: str,
        *words: str,
        warm: bool = True,
        variables: dict[str, str] | None = None,
        name: str = "script.py",
    ) -> Ended:
        """Run a script to its end."""
        script = self.folder / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(source, encoding="utf-8")
        return self.run_command([sys.executable, str(script), *words], warm=warm, variables=variables)

    def run_command(self, command: list[str], *, warm: bool = True, variables: dict[str, str] | None = None) -> Ended:
        """Run a command to its end."""
        return Ended(**self.ask(do="run", command=command, warm=warm, variables=variables or {}))

    def start(self, source: str) -> int:
        """Start a script that stays; its process number."""
        script = self.folder / "stays.py"
        script.write_text(source, encoding="utf-8")
        return self.ask(do="start", command=[sys.executable, str(script)])

    def server(self) -> int | None:
        """The fork server's process number, once it is ready; None if there is none."""
        return self.ask(do="server")

    def reported(self) -> list[str]:
        """What users were told."""
        return self.ask(do="reported")


class _Launcher:
    def __init__(self, folder: Path, fork_seconds: float) -> None:
        self._folder = folder
        self._reported: list[str] = []
        self._kept: dict[int, TaskProcess] = {}
        command = (sys.executable, str(folder / "train.py"))
        server = ProcessSpec(command, dict(os.environ), folder, folder / "fork-server.log")
        settings = LauncherSettings(
            fork_seconds=fork_seconds,
            warm_start_seconds=DEADLINE_SECONDS,
            warm_rest_seconds=0.0,
            restart_backoff_seconds=0.01,
        )
        self._warm = WarmStarter(server, settings, self._reported.append, lambda: None, time.monotonic)

    def run(self, command: list[str], warm: bool, variables: dict[str, str]) -> dict[str, Any]:
        process, lines = self._make(command, warm, variables)
        if not process.wait(DEADLINE_SECONDS):
            process.kill()
        code = process.poll()
        process.last_words()
        out, errors = "\n".join(lines["stdout"]), "\n".join(lines["stderr"])
        return {"code": code, "out": out, "errors": errors, "warm": process.warm}

    def start(self, command: list[str]) -> int:
        process, lines = self._make(command, True, {})
        self._kept[process.pid] = process
        while not lines["stdout"]:
            time.sleep(0.01)
        return process.pid

    def start_and_forget(self, command: list[str]) -> None:
        """Ask for a fork, and be gone before it can say that it is there."""
        self._wait()
        leash, its_leash = socket.socketpair()
        request = {"python": command[0], "command": command[1:], "environment": dict(os.environ), "folder": "/"}
        leash.close()
        null = os.open(os.devnull, os.O_WRONLY)
        wire.send(self._warm._server._channel, request, (its_leash.fileno(), null, null))

    def ended(self, pid: int) -> int | None:
        """The exit code of a task that was started and stays; waits for it."""
        self._kept[pid].wait(DEADLINE_SECONDS)
        return self._kept[pid].poll()

    def server(self) -> int | None:
        self._wait()
        return self._warm.pid

    def given_up(self) -> bool:
        """Whether no server is started again."""
        self._poll()
        return self._warm._start_at is None

    def waits(self, command: list[str]) -> bool:
        """Whether a task is to wait for the server, which imports for seconds from now on."""
        self._warm.rest()
        return self._warm.is_to_wait(self._spec(command, {}))

    def reported(self) -> list[str]:
        return self._reported

    def idle(self) -> None:
        """Look while no task may have to be started."""
        self._warm.poll(set(self._kept), needed=False)

    def children(self) -> list[int]:
        """Process numbers of children after those that ended were let go of."""
        self._poll()
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]

    def _poll(self) -> None:
        self._warm.poll(set(self._kept), needed=True)

    def _wait(self) -> None:
        while True:
            self._poll()
            if not self._warm.is_to_wait(self._spec([sys.executable, "x.py"], {})):
                return
            time.sleep(0.01)

    def _make(
        self, command: list[str], warm: bool, variables: dict[str, str]
    ) -> tuple[TaskProcess, dict[str, list[str]]]:
        lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        if warm:
            self._wait()
        process = TaskProcess(
            "task",
            self._spec(command, variables),
            _LOG_BYTES,
            lambda _, stream, line: lines[stream.value].append(line.decode()),
            self._warm if warm else None,
        )
        return process, lines

    def _spec(self, command: list[str], variables: dict[str, str]) -> ProcessSpec:
        return ProcessSpec(tuple(command), {**os.environ, **variables}, self._folder, self._folder / "task.log")


def main() -> None:
    """Do what each line says."""
    launcher = _Launcher(Path(sys.argv[1]), float(sys.argv[2]))
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        print(json.dumps(getattr(launcher, do)(**command)), flush=True)


if __name__ == "__main__":
    main()
