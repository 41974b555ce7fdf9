"""Keeper of a job's coordinator: it is started again when it dies, a limited number of times."""

from __future__ import annotations

from collections.abc import Callable

from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.control_socket import ControlPort, ControlSocket, remove_left
from elastic_runtime.launcher.job_folder import read_json
from elastic_runtime.launcher.job_spec import COORDINATOR, Programs
from elastic_runtime.launcher.settings import LauncherSettings, RestartLimit
from elastic_runtime.launcher.task_process import Show, TaskProcess
from elastic_runtime.launcher.warm.starter import WarmStarter
from foundation.text import describe_end

_BAD_INPUT = 2


class JobFailed(ElasticError):
    """The job, or something that it cannot do without, ended with an error."""


class CoordinatorKeeper:
    """One coordinator's process, and the address that it answers at.

    Args:
        tell: says something to the user.
        clock: seconds, monotonic.
        warm: forks it, where it can.
    """

    def __init__(
        self,
        programs: Programs,
        settings: LauncherSettings,
        show: Show,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        warm: WarmStarter | None = None,
    ) -> None:
        self._warm = warm
        self._programs = programs
        self._settings = settings
        self._show = show
        self._tell = tell
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
        """Remove what was made for it; it has ended."""
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
        said = f": {words}" if words and code > 0 else ""
        # One that has served before could use what it was given.
        if code == _BAD_INPUT and self.address is None:
            raise BadInput(
                f"the coordinator cannot start{said}" if said else f"the coordinator cannot start; see {log}"
            )
        self._start_at = self._restarts.on_death(now)
        if self._start_at is None:
            raise JobFailed(f"the coordinator {describe_end(code)} once more{said} (see {log}); it is given up")
        self._tell(f"the coordinator {describe_end(code)}{said} (see {log}); it is started again")
