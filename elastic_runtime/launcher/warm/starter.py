"""Starter of warm tasks: the launcher's side of its fork server, which it starts, asks, and does without.

Whatever is wrong with the server, tasks start all the same, cold; why is told once.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.script_source import obstacle_in
from elastic_runtime.launcher.settings import LauncherSettings, RestartLimit
from elastic_runtime.launcher.warm import forked_task
from elastic_runtime.launcher.warm.server_process import ForkServerProcess, ServerGone, ServerUnfit, take_inherited
from foundation import kinship
from foundation.files import open_ordinary

_READ_WHEN_USED = (
    "ELASTIC_",
    "OMP_NUM_THREADS",
    "PYTHONSAFEPATH",
    "CUDA_VISIBLE_DEVICES",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
)
"""How variables begin that may differ between the server and a task: nothing that is loaded has looked at them."""
RESTARTS = 3
"""How often a server that ended is started again in `_WINDOW_SECONDS`."""
_WINDOW_SECONDS = 600.0
_LEAST_COMMAND_BYTES = 256


@dataclass(frozen=True, slots=True)
class WarmChild:
    """A forked task, the launcher's own child; `out` and `errors` are read ends of its pipes."""

    pid: int
    out: IO[bytes]
    errors: IO[bytes]

    def reap(self) -> int:
        """Wait for its end; its exit code, minus the signal's number if one ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class WarmStarter:
    """One launcher's fork server; all but one short thread runs in the launcher's main one.

    Args:
        server: environment, folder and output of a task. Its command is the interpreter and the job's script.
        wake: called from another thread when the server has something to say.
    """

    def __init__(
        self,
        server: ProcessSpec,
        settings: LauncherSettings,
        report: Callable[[str], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._spec = server
        self._settings = settings
        self._report = report
        self._wake = wake
        self._clock = clock
        self._server: ForkServerProcess | None = None
        self._knows_script = False
        self._restarts = RestartLimit(
            RESTARTS, _WINDOW_SECONDS, settings.restart_backoff_seconds, settings.longest_backoff_seconds
        )
        can_be = server.command[0] == sys.executable and kinship.adopt()
        self._start_at = clock() if can_be else None
        self._needed_at = -math.inf
        self._reported: set[str] = set()
        born_with = take_inherited()
        if born_with is not None:
            self._server = ForkServerProcess(born_with.channel, math.inf, settings.fork_seconds, born_with.process)
            if not can_be or _read_at_once(born_with.environment) != _read_at_once(server.environment):
                self.rest()

    @property
    def pid(self) -> int | None:
        """The server's process number, while there is one."""
        return None if self._server is None else self._server.pid

    def begin(self) -> None:
        """Start the server, unless there is one, or is not to be one; it is told of the script."""
        if self._server is None:
            if self._start_at is None or self._clock() < self._start_at:
                return
            launcher = str(os.getpid())
            longest = max(len(b"\0".join(os.fsencode(word) for word in self._spec.command)), _LEAST_COMMAND_BYTES)
            try:
                self._server = ForkServerProcess.begun(
                    [launcher, " " * longest],
                    self._spec.environment,
                    self._log(),
                    self._clock() + self._settings.warm_start_seconds,
                    self._settings.fork_seconds,
                    through=[sys.executable, "-I", "-S", str(parent_death.__file__), launcher],
                    folder=self._spec.working_folder,
                )
            except OSError as error:
                self._give_up(f"no process can be started: {error}")
                return
        if not self._knows_script:
            self._report_script(self._server)

    def _report_script(self, server: ForkServerProcess) -> None:
        request = {
            "script": self._spec.command[1],
            "environment": dict(self._spec.environment),
            "folder": str(self._spec.working_folder),
        }
        deadline = self._clock() + self._settings.warm_start_seconds
        try:
            with self._log() as log:
                server.prepare(request, (log.fileno(), log.fileno()), deadline)
        except (OSError, ServerGone) as error:
            self._on_death(str(error))
            return
        self._knows_script = True
        server.wake_when_it_speaks(self._wake)

    def _log(self) -> FileIO:
        """The server's log, begun anew; the script may have put something else there."""
        path, flags = self._spec.log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        return FileIO(open_ordinary(path, flags, below=path.parents[1]), "wb")

    def poll(self, known: Collection[int], needed: bool) -> None:
        """Look how the server is, and reap orphans that have ended.

        Args:
            needed: whether tasks may have to be started soon. A server that takes memory for nothing is ended.
        """
        now = self._clock()
        if needed:
            self._needed_at = now
            self.begin()
        elif now >= self._needed_at + self._settings.warm_rest_seconds:
            self.rest()
        if self._server is not None:
            try:
                self._server.hear(now)
            except ServerUnfit as error:
                self._give_up(str(error))
            except ServerGone as error:
                self._on_death(f"{error} (see {self._spec.log_file})")
        kinship.reap({*known} if self.pid is None else {*known, self.pid})

    def is_to_wait(self, spec: ProcessSpec) -> bool:
        """Whether a task had better wait for a server that still imports."""
        if not self._fits(spec):
            return False
        self.begin()
        if self._server is None or self._server.ready:
            return False
        command = spec.command[1:]
        return not (forked_task.runs_script(command) and obstacle_in(Path(command[0])))

    def start(self, spec: ProcessSpec) -> WarmChild | None:
        """Fork a task; None: it is to be started cold."""
        server = self._server
        if server is None or not self._fits(spec):
            return None
        # Of a server that is not told of the script yet nothing is expected, and what is ours can be had.
        if not server.ready and (self._knows_script or forked_task.runs_script(spec.command[1:])):
            return None
        request = {
            "python": spec.command[0],
            "command": spec.command[1:],
            "environment": dict(spec.environment),
            "folder": str(spec.working_folder),
            "descriptors": list(spec.descriptors),
        }
        ends: list[int] = []
        try:
            for _ in range(2):
                ends += os.pipe()
            answer = server.fork(request, (ends[1], ends[3], *spec.descriptors))
            if "pid" not in answer:
                self._report_once(str(answer["refused"]))
                return None
            out, errors = open(ends[0], "rb", 0), open(ends[2], "rb", 0)  # noqa: PTH123, SIM115
            del ends[2], ends[0]
            return WarmChild(int(answer["pid"]), out, errors)
        except (OSError, ServerGone) as error:
            self._on_death(str(error))
            return None
        finally:
            for number in ends:
                os.close(number)

    def rest(self) -> None:
        """End the server; it is started again when there is something to start."""
        self._knows_script = False
        if self._server is not None:
            self._server.close()
            self._server = None

    def _fits(self, spec: ProcessSpec) -> bool:
        command = spec.command
        same = _read_at_once(spec.environment) == _read_at_once(self._spec.environment)
        return same and command[0] == self._spec.command[0] and forked_task.can_run(command[1:])

    def _on_death(self, why: str) -> None:
        self.rest()
        self._start_at = self._restarts.on_death(self._clock())
        self._report_once(why)

    def _give_up(self, why: str) -> None:
        self.rest()
        self._start_at = None
        self._report_once(why)

    def _report_once(self, why: str) -> None:
        if why not in self._reported:
            self._reported.add(why)
            self._report(f"tasks start cold: {why}")


def _read_at_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_READ_WHEN_USED)}
