"""The fleet's processes: started together, watched, and ended together whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from deploy.local.guardian import VARIABLE, Guardian
from policy_net.errors import PolicyNetError

STOP_SECONDS = 30.0
"""How long a process may take to end by itself; an agent pushes what it has left first."""


class DemoFailed(PolicyNetError):
    """A process of the fleet ended or never answered; the message names its log."""


class Processes:
    """Runs programs with their output in one log file each; leaving the context ends all of them, and a guardian does
    so if this process is killed."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._held: list[socket.socket] = []
        self._guardian: Guardian | None = None

    def __enter__(self) -> Processes:
        self._guardian = Guardian(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop_all()
        finally:
            for holder in self._held:
                holder.close()
            if self._guardian is not None:
                self._guardian.release()

    def port(self) -> int:
        """A loopback port for a program to listen on, which nobody else is given as long as the context lasts.

        One that is only found free may be anybody's, also the near end of a connection, by the time it is used.
        """
        if sys.platform != "linux":
            return free_port()  # elsewhere a port that is held is one that cannot be listened on
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as those set it who are to listen there
        holder.bind(("127.0.0.1", 0))
        self._held.append(holder)
        number: int = holder.getsockname()[1]
        return number

    def start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        """Start `python -m module arguments…` under a name."""
        self._start(name, ["-m", module, *arguments])

    def start_script(self, name: str, script: Path, arguments: Sequence[str]) -> None:
        """Start `python script arguments…` under a name."""
        self._start(name, [str(script), *arguments])

    def kill(self, name: str) -> None:
        """End a process at once; it may be started again."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        # One thread each: three agents and a learner share the machine, and small matrices gain nothing from more.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        if self._guardian is not None:
            environment[VARIABLE] = self._guardian.mark
        with self.log_of(name).open("ab") as log:
            # A session of its own: Ctrl-C reaches the demo alone, which then ends the fleet in order.
            self._running[name] = subprocess.Popen(  # noqa: S603  (our own programs, our own files)
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def log_of(self, name: str) -> Path:
        """Where a process writes."""
        return self._folder / f"{name}.log"

    def pid_of(self, name: str) -> int:
        """The process's number."""
        return self._running[name].pid

    def is_running(self, name: str) -> bool:
        """Whether the process has not ended."""
        return self._running[name].poll() is None

    def cpu_seconds(self) -> float:
        """Processor time that those which run now have had; 0 where that cannot be found out."""
        return sum(_cpu_seconds(process.pid) for process in self._running.values() if process.poll() is None)

    def check(self) -> None:
        """See that nothing has failed.

        Raises:
            DemoFailed: a process has ended with an error.
        """
        for name, process in self._running.items():
            code = process.poll()
            if code not in (None, 0):
                log = self.log_of(name)
                raise DemoFailed(f"{name} ended with exit code {code}: {_last_line(log)} (see {log})")

    def stop(self, names: Sequence[str], wait_seconds: float = STOP_SECONDS) -> None:
        """Ask processes to end, all at once; kill what has not ended in time."""
        processes = [self._running[name] for name in names if name in self._running]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = self._clock() + wait_seconds
        for process in processes:
            try:
                process.wait(max(0.0, deadline - self._clock()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stop_all(self) -> None:
        """End everything: agents before the learners that they push to."""
        learners = [name for name in self._running if name.endswith("learner")]
        self.stop([name for name in self._running if name not in learners])
        self.stop(learners)


def free_port() -> int:
    """A loopback port that nothing listens on right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _cpu_seconds(pid: int) -> float:
    """User and system time; see proc_pid_stat(5). The program's name, in parentheses, may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it wrote nothing"
