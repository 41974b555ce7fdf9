"""Workers of one run of a script: started together, ended together, with the variables that torchrun sets.

A single worker of a script with a fixed size is a plain process, and gets none of these variables.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster_agent.backends.local.scripts.script_folder import ScriptRecord
from elastic_runtime.checkpoint.rank_files import CHECKPOINT_SECONDS_VARIABLE, FOLDER_VARIABLE
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_process import Stream, TaskProcess
from elastic_runtime.launcher.warm.starter import WarmStarter
from foundation.text import describe_end

_HOST = "127.0.0.1"
_BAD_INPUT = 2


class RankGroup:
    """One run; each worker gets as many of the job's `gpus` as the record says, and is forked by `warm` where it can.

    Raises:
        OSError: a worker cannot be started; none is left.
    """

    def __init__(
        self,
        record: ScriptRecord,
        folder: Path,
        workers: int,
        gpus: tuple[str, ...],
        environment: Mapping[str, str],
        clock: Callable[[], float],
        warm: WarmStarter | None = None,
    ) -> None:
        self.workers = workers
        self._clock = clock
        self._grace_seconds = record.grace_seconds
        self._kill_at: float | None = None
        self._codes: dict[str, int] = {}
        self._killed = False
        self._port = _held_port() if record.elastic or workers > 1 else None
        self._processes: dict[str, TaskProcess] = {}
        command = (record.python, str(record.script), *record.args)
        settings = LauncherSettings()
        try:
            for rank in range(workers):
                name = f"worker-{rank}"
                variables = self._variables(record, folder, rank, gpus)
                spec = ProcessSpec(
                    command, {**environment, **variables}, record.workdir, folder / "logs" / f"{name}.log"
                )
                self._processes[name] = TaskProcess(name, spec, settings.log_bytes, _nobody_looks, warm)
        except OSError:
            self.kill()
            self.close()
            raise

    @property
    def running(self) -> bool:
        """Whether any worker runs; looks."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and name not in self._codes:
                self._codes[name] = code
        if self._kill_at is not None and self._clock() >= self._kill_at:
            self.kill()
        return len(self._codes) < len(self._processes)

    @property
    def pids(self) -> set[int]:
        """Process numbers of all."""
        return {process.pid for process in self._processes.values()}

    @property
    def first(self) -> int:
        """Process number of the first worker."""
        return self._processes["worker-0"].pid

    @property
    def failure(self) -> str:
        """How the first worker that failed ended, in a line; empty if none has."""
        for name, code in self._codes.items():
            if code != 0:
                words = self._processes[name].last_words() if code > 0 else ""
                if code == -signal.SIGKILL and not self._killed:
                    words = "not by us; the kernel does so where memory runs out"
                return f"{name} {describe_end(code)}" + (f": {words}" if words else "")
        return ""

    @property
    def drained(self) -> bool:
        """Whether the first worker that did not end well was ended by SIGTERM, by its own handler or without one."""
        first = next((code for code in self._codes.values() if code), 0)
        return first in (-signal.SIGTERM, 128 + signal.SIGTERM)

    @property
    def refused(self) -> bool:
        """Whether a worker ended with 2: another start would end likewise."""
        return _BAD_INPUT in self._codes.values()

    def terminate(self) -> None:
        """Ask all to end; who has not done so in time is killed by a later look."""
        if self._kill_at is None:
            self._kill_at = self._clock() + self._grace_seconds
            for process in self._processes.values():
                process.terminate()

    def kill(self) -> None:
        """End all, and whatever they started, at once."""
        self._killed = True
        for process in self._processes.values():
            process.kill()

    def close(self) -> None:
        """Wait for the end of all, which is under way, and give back what they had."""
        for process in self._processes.values():
            if not process.wait(self._grace_seconds, self._clock):
                process.kill()
            process.wait(self._grace_seconds, self._clock)
            process.last_words()
        if self._port is not None:
            self._port.close()

    def _variables(self, record: ScriptRecord, folder: Path, rank: int, gpus: tuple[str, ...]) -> dict[str, str]:
        variables = {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
        if record.gpus:
            mine = gpus[rank * record.gpus : (rank + 1) * record.gpus]
            if len(mine) < record.gpus:
                raise OSError(f"worker-{rank} would need {record.gpus} GPUs of the job's {len(gpus)}")
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        if self._port is not None:
            variables |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank if not record.gpus else 0),
                "WORLD_SIZE": str(self.workers),
                "LOCAL_WORLD_SIZE": str(self.workers),
                "MASTER_ADDR": _HOST,
                "MASTER_PORT": str(self._port.getsockname()[1]),
            }
        if record.elastic:
            variables[FOLDER_VARIABLE] = str(folder)
            variables[CHECKPOINT_SECONDS_VARIABLE] = str(record.checkpoint_seconds)
        return variables


def _held_port() -> socket.socket:
    """A port that nobody else is given while this socket is open; the first worker can listen there all the same."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((_HOST, 0))
    return held


def _nobody_looks(task: str, stream: Stream, line: bytes) -> None:
    """The logs have it."""
