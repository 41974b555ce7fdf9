"""Keeper of a job's coordinator: it is started again when it dies, a limited number of times."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elastic_runtime.control.credentials import path_of_socket, socket_address
from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.job_folder import read_json
from elastic_runtime.launcher.job_spec import COORDINATOR, Programs
from elastic_runtime.launcher.settings import LauncherSettings, RestartLimit
from elastic_runtime.launcher.task_process import Show, TaskProcess
from elastic_runtime.launcher.warm.starter import WarmStarter
from foundation.text import describe_end

_BAD_INPUT = 2


# Nobody else can be at a coordinator's address while it is away and started again.
#
# Where all of a job is on one machine it is a Unix socket in the job's folder, which only its owner may enter; where
# none can be there (its path is longer than the system's 107 bytes, or its file system has none), in a folder of its
# own among the temporary ones, as closed. Where there has to be a port the launcher listens on it, as long as it lives,
# and hands the socket to each coordinator.
#
# Deviation: no SO_REUSEPORT, by which a coordinator could listen beside a launcher that only holds the port: every
# other process of the same user number can do so too, and in containers that share the machine's network that is
# anybody.

_NAME = "control"
_PREFIX = "fedl2-job-"
_BACKLOG = 512
"""Who connects while a coordinator is away; a job has some hundred members."""


class ControlPort:
    """Listening port (0: any that is free), from its making until it is closed.

    Raises:
        BadInput: it cannot listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server(where, family=family, backlog=_BACKLOG)
        except OSError as error:
            raise BadInput(f"--bind {host} --port {port}: cannot be listened on ({error.strerror})") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._socket.getsockname()[1]}"
        self.descriptor: int | None = self._socket.fileno()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


class ControlSocket:
    """Place of a Unix socket; `close` removes a folder that was made for it.

    Raises:
        BadInput: there is no place for it.
    """

    def __init__(self, folder: Path) -> None:
        self._own: Path | None = None
        path = folder / _NAME
        if not _can_be(path):
            try:
                self._own = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
            except OSError as error:
                raise BadInput(f"{tempfile.gettempdir()}: no folder can be made there ({error.strerror})") from error
            path = self._own / _NAME
            if not _can_be(path):
                self.close()
                raise BadInput(f"{path}: no Unix socket can be made there; set TMPDIR to a folder with a short name")
        self.address = socket_address(path)
        self.descriptor: int | None = None

    def close(self) -> None:
        """Remove a folder that was made."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


def remove_left(record: Mapping[str, Any] | None) -> None:
    """Remove the socket's folder of a launcher that could not do it itself, by its coordinator's record."""
    path = path_of_socket(str((record or {}).get("address", "")))
    if path is not None and path.parent.name.startswith(_PREFIX) and path.parent.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(path.parent, ignore_errors=True)


def _can_be(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)  # of a coordinator that was killed
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True


class JobFailed(ElasticError):
    """The job, or something that it cannot do without, ended with an error."""


class CoordinatorKeeper:
    """One coordinator's process, and its address."""

    def __init__(
        self,
        programs: Programs,
        settings: LauncherSettings,
        show: Show,
        report: Callable[[str], None],
        clock: Callable[[], float],
        warm: WarmStarter | None = None,
    ) -> None:
        self._warm = warm
        self._programs = programs
        self._settings = settings
        self._show = show
        self._report = report
        self._clock = clock
        self._restarts = RestartLimit(
            settings.coordinator_restarts,
            settings.coordinator_window_seconds,
            settings.restart_backoff_seconds,
            settings.longest_backoff_seconds,
        )
        self._process: TaskProcess | None = None
        self._socket: ControlSocket | ControlPort | None = None
        self._deadline = 0.0
        self._start_at: float | None = clock()
        self.address: str | None = None
        """Once it listens; the same for the whole life of the launcher."""

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def pids(self) -> set[int]:
        """Its process number, if there is a process."""
        return set() if self._process is None else {self._process.pid}

    def poll(self, needed: bool = True) -> None:
        """Start it, start it again, or learn where it listens: whatever is due.

        Args:
            needed: whether it is to be started again should it have ended; it ends by itself after its job.

        Raises:
            BadInput: it cannot use what it was given.
            JobFailed: it dies too often, or does not begin to listen.
        """
        now = self._clock()
        if self._process is not None:
            code = self._process.poll()
            if code is not None and not needed:
                self._process = None
            elif code is not None:
                self._on_death(self._process, code, now)
            elif self._deadline:
                self._learn_address(self._process, now)
        if self._process is None and self._start_at is not None and now >= self._start_at:
            self._start(now)

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False if it did not come in time."""
        return self._process is None or self._process.wait(seconds, self._clock)

    def close(self) -> None:
        """Remove the ended coordinator's socket."""
        if self._socket is not None:
            self._socket.close()

    def _start(self, now: float) -> None:
        file = self._programs.folder.address_file
        if self._socket is None:
            spec = self._programs.spec
            remove_left(read_json(file))
            alone = spec.on_one_machine
            self._socket = ControlSocket(self._programs.folder.path) if alone else ControlPort(spec.bind, spec.port)
        file.unlink(missing_ok=True)
        self._process = TaskProcess(
            COORDINATOR,
            self._programs.coordinator_process(
                self._socket.address, self._socket.descriptor, again=self.address is not None
            ),
            self._settings.log_bytes,
            self._show,
            self._warm,
        )
        self._start_at = None
        self._deadline = now + self._settings.coordinator_start_seconds

    def _learn_address(self, process: TaskProcess, now: float) -> None:
        found = read_json(self._programs.folder.address_file)
        if found is not None and found.get("pid") == process.pid and isinstance(found.get("address"), str):
            self.address = found["address"]
            self._deadline = 0.0
        elif now >= self._deadline:
            process.kill()
            raise JobFailed(
                f"the coordinator did not listen within {self._settings.coordinator_start_seconds:g} s; "
                f"see {self._programs.folder.log_file(COORDINATOR)}"
            )

    def _on_death(self, process: TaskProcess, code: int, now: float) -> None:
        self._process = None
        self._deadline = 0.0
        words = process.last_words()
        log = self._programs.folder.log_file(COORDINATOR)
        reason = f": {words}" if words and code > 0 else ""
        # One that has served before could use what it was given.
        if code == _BAD_INPUT and self.address is None:
            raise BadInput(
                f"the coordinator cannot start{reason}" if reason else f"the coordinator cannot start; see {log}"
            )
        self._start_at = self._restarts.on_death(now)
        if self._start_at is None:
            raise JobFailed(f"the coordinator {describe_end(code)} once more{reason} (see {log}); it is given up")
        self._report(f"the coordinator {describe_end(code)}{reason} (see {log}); it is started again")
