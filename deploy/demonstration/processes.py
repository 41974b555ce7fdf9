"""Processes of a demonstration: started together, watched, and ended together whatever happens.

A demonstration ends its processes itself, unless it is killed; and jobs of an agent outlive it by design. So all its
processes carry a mark, and its guardian, a process that waits for the end of its standard input, then kills all that
carry the mark. Should the guardian be killed too, the next demonstration in the same folder does it first.

Usage of the guardian: python -m deploy.demonstration.processes MARK
"""

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

from foundation.kinship import cpu_seconds, end_marked
from policy_net.errors import PolicyNetError

VARIABLE = "FEDL2_DEMO_RUN"
"""Of the environment, with the mark."""
_SWEEPS = 100
_BETWEEN_SWEEPS_SECONDS = 0.05
"""For processes that were just being started while the others were killed."""

STOP_SECONDS = 30.0
"""How long a process may take to end by itself; an agent pushes what it has left first."""


class DemoFailed(PolicyNetError):
    """A process of the fleet ended or never answered; the message names its log."""


class Guardian:
    """The guardian's handle; it does its work when this process ends, or at `release`.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.mark = f"{_folder_mark(folder)}{os.getpid()}-{time.time_ns():x}"
        self._process = subprocess.Popen(  # noqa: S603  (our own program)
            [sys.executable, "-m", "deploy.demonstration.processes", self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # neither Ctrl-C nor the end of a terminal reaches it
        )

    def release(self, wait_seconds: float = 60.0) -> None:
        """Let it end what is left, and itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_leftovers(folder: Path) -> int:
    """Kill what an earlier demonstration in this folder left behind, as nobody guarded it; how many there were."""
    return _end(_folder_mark(folder), prefix=True)


def _folder_mark(folder: Path) -> str:
    return f"{folder.resolve()}#"


def _end(mark: str, *, prefix: bool = False) -> int:
    ended = 0
    for _ in range(_SWEEPS):
        found = end_marked(VARIABLE, mark, prefix=prefix)
        if not found:
            break
        ended += found
        time.sleep(_BETWEEN_SWEEPS_SECONDS)
    return ended


class Processes:
    """Runs programs with their output in one log file each; leaving the context ends all of them, and a guardian does
    so if this process is killed."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: list[socket.socket] = []
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
            for holder in self._ports:
                holder.close()
            if self._guardian is not None:
                self._guardian.release()

    def port(self) -> int:
        """A loopback port for a program to listen on, which nobody else is given as long as the context lasts.

        One that is only found free may be anybody's, also the near end of a connection, by the time it is used.
        """
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the programs that are to listen there set it
        holder.bind(("127.0.0.1", 0))
        number: int = holder.getsockname()[1]
        if sys.platform == "linux":
            self._ports.append(holder)
        else:
            holder.close()  # elsewhere a port that is held is one that cannot be listened on
        return number

    def start(self, name: str, program: str, arguments: Sequence[str]) -> None:
        """Start `python -m program arguments…` under a name, or a script whose path ends in `.py`."""
        # One thread each: three agents and a learner share the machine, and small matrices gain nothing from more.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        if self._guardian is not None:
            environment[VARIABLE] = self._guardian.mark
        with self.log_of(name).open("ab") as log:
            # A session of its own: Ctrl-C reaches the demo alone, which then ends the fleet in order.
            self._running[name] = subprocess.Popen(  # noqa: S603  (our own programs, our own files)
                [sys.executable, *([] if program.endswith(".py") else ["-m"]), program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a process at once; it may be started again."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

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
        return cpu_seconds(process.pid for process in self._running.values() if process.poll() is None)

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


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it wrote nothing"


if __name__ == "__main__":
    while sys.stdin.buffer.read(4096):
        pass
    _end(sys.argv[1])
