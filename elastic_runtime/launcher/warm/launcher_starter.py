"""Starter of launchers: the agent's side of its launcher servers, which it starts, asks, and does without.

Whatever is wrong with a server, launchers start all the same, by themselves; why is told once. A launcher is a fork of
one that has imported nothing but what is ours, and what the job's own script imports: for each such set there is a
server, forked from the first when a script has asked for it. If packages are installed meanwhile, all begin anew.
"""

from __future__ import annotations

import math
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from elastic_runtime.launcher.script_source import BASE, MORE_VARIABLE, Import, imports_ahead
from elastic_runtime.launcher.settings import RestartLimit
from elastic_runtime.launcher.warm.forked_task import THREAD_VARIABLES
from elastic_runtime.launcher.warm.server_process import ForkServerProcess, ServerGone
from elastic_runtime.launcher.warm.serving import PLACEHOLDER_VARIABLE
from foundation.files import open_ordinary

_UNBUFFERED = "PYTHONUNBUFFERED"
_READ_WHEN_USED = ("ELASTIC_", _UNBUFFERED, "CUDA_VISIBLE_DEVICES", *THREAD_VARIABLES)
"""How variables begin that may differ between the server and a launcher: nothing that is loaded has looked at them, or
it is told anew. Buffers are off in the server, and in all tasks."""
_LOG = "launcher-server.log"
PLACEHOLDER_BYTES = 4096
"""For the variable by which launchers are found, with its name."""
_LONGEST_COMMAND_BYTES = 1024
_MOST_SETS = 6
"""Servers beside the first, each with what other scripts import; who was asked longest ago goes."""
_WINDOW_SECONDS = 600.0
_STILL_SECONDS = 5.0
"""For so long nothing was installed before a server begins anew."""


@dataclass(frozen=True, slots=True)
class StarterSettings:
    """How long a launcher server is waited for, and kept."""

    start_seconds: float = 60.0
    """Until it has imported everything."""
    answer_seconds: float = 10.0
    """Until it has forked a launcher; some hundredths where the machine is not overloaded."""
    rest_seconds: float = 600.0
    """How long it is kept when there is no job: it takes 200 MB."""
    restarts: int = 3
    """How often one that ended is started again in ten minutes."""


class LauncherStarter:
    """One agent's launcher servers; used from one thread.

    Args:
        shown: the variable by which others find a launcher, and what it started.
        report: is told in a line why launchers start without the server.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        shown: str,
        report: Callable[[str], None],
        settings: StarterSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = {
            **{name: value for name, value in environment.items() if name != shown},
            **dict.fromkeys(THREAD_VARIABLES, "1"),
            _UNBUFFERED: "1",
        }
        self._folder = folder
        self._shown = shown
        self._report = report
        self._settings = settings or StarterSettings()
        self._clock = clock
        self._base: ForkServerProcess | None = None
        self._with_more: dict[frozenset[Import], ForkServerProcess] = {}
        self._refused: set[frozenset[Import]] = set()
        self._packages = _packages_stamp()
        self._needed_at = clock()
        self._restarts = self._restart_limit()
        self._start_at = clock() if sys.platform == "linux" else math.inf
        self._reported: set[str] = set()

    @property
    def pid(self) -> int | None:
        """Process number of the first server; None if there is none."""
        return None if self._base is None else self._base.pid

    @property
    def is_ready(self) -> bool:
        """Whether any launcher could be forked now."""
        return self._base is not None and self._base.ready

    def is_ready_for(self, script: Path, environment: Mapping[str, str]) -> bool:
        """Whether the launcher of a script would have imported all that the script does."""
        imports = _added_by(script, environment)
        server = self._with_more.get(imports) if imports else self._base
        return server is not None and server.ready

    def poll(self, *, needed: bool) -> None:
        """Look how the servers are; start the first where it is needed, and end all where none was for long."""
        now = self._clock()
        if needed:
            self._needed_at = now
        if now >= self._needed_at + self._settings.rest_seconds:
            self.close()
            return
        self._hear(now)
        if (stamp := _packages_stamp()) != self._packages:
            self._packages = stamp
            self._refused.clear()
            self.close()
            # Packages are half there while they are installed: that fails, and says nothing of what comes then.
            self._restarts = self._restart_limit()
            self._start_at = now + _STILL_SECONDS
        if self._base is None and now >= self._start_at:
            self._begin(now)

    def start(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: int,
        kept: Sequence[int],
        script: Path | None,
    ) -> int | None:
        """Fork a launcher; its process number, or None: it is to be started without the server.

        Args:
            command: this interpreter, `-m`, and a module that has a `main`.
            kept: descriptors that it holds as long as it lives, and nothing else of the job does.
            script: of the job; None if its workers are not to be forked.
        """
        now = self._clock()
        self._hear(now)
        if self._base is None or not self._base.ready or not self._fits(command, folder, environment):
            return None
        imports = frozenset[Import]() if script is None else _added_by(script, environment)
        request = {
            "module": command[2],
            "arguments": list(command[3:]),
            "environment": {**environment, _UNBUFFERED: "1"},
            "folder": str(folder),
            "shown": [self._shown, environment[self._shown]],
            "forks_tasks": script is not None,
        }
        server = self._base
        try:
            server = self._best_for(imports, server, now)
            return server.fork(request, (output, output, *kept)).get("pid")
        except ServerGone as error:
            if server is self._base:
                self._on_death(str(error))
            else:  # the others have nothing to do with what these scripts import
                self._refuse(imports)
            return None

    def close(self) -> None:
        """End the servers; launchers stay."""
        for server in (*self._with_more.values(), self._base):
            if server is not None:
                server.close()
        self._with_more.clear()
        self._base = None

    def _begin(self, now: float) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            log = open_ordinary(self._folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self._base = ForkServerProcess.begun(
                [" " * _LONGEST_COMMAND_BYTES],
                {**self._environment, PLACEHOLDER_VARIABLE: "-" * PLACEHOLDER_BYTES},
                FileIO(log, "wb"),
                now + self._settings.start_seconds,
                self._settings.answer_seconds,
            )
        except OSError as error:
            self._on_death(f"no process can be started: {error}")

    def _hear(self, now: float) -> None:
        for imports, server in list(self._with_more.items()):
            try:
                server.hear(now)
            except ServerGone:  # these are left to the scripts
                self._refuse(imports)
        if self._base is not None:
            try:
                self._base.hear(now)
            except ServerGone as error:
                self._on_death(str(error))

    def _refuse(self, imports: frozenset[Import]) -> None:
        self._refused.add(imports)
        self._with_more.pop(imports).close()

    def _restart_limit(self) -> RestartLimit:
        return RestartLimit(self._settings.restarts, _WINDOW_SECONDS, 1.0, 60.0)

    def _best_for(self, imports: frozenset[Import], base: ForkServerProcess, now: float) -> ForkServerProcess:
        """The server that has imported most of what a script does; the next time it is one that has all.

        Raises:
            ServerGone: the first does not answer.
        """
        if not imports or imports in self._refused:
            return base
        found = self._with_more.pop(imports, None)
        if found is None:
            found = base.with_imports(imports, now, self._settings.start_seconds)
            if len(self._with_more) >= _MOST_SETS:
                self._with_more.pop(next(iter(self._with_more))).close()
        self._with_more[imports] = found  # at the end: it was asked last
        return found if found.ready else base

    def _fits(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> bool:
        if list(command[:2]) != [sys.executable, "-m"] or not folder.is_dir():
            return False
        if len(os.fsencode(f"{self._shown}={environment.get(self._shown, '')}")) > PLACEHOLDER_BYTES:
            return False
        # They are set anew by one number, so they have to be one.
        threads = {environment.get(name, "") for name in THREAD_VARIABLES}
        if len(threads) > 1 or not threads.pop().isdigit():
            return False
        return self._read_at_once(environment) == self._read_at_once(self._environment)

    def _read_at_once(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in environment.items()
            if not name.startswith(_READ_WHEN_USED) and name != self._shown
        }

    def _on_death(self, why: str) -> None:
        self.close()
        again = self._restarts.on_death(self._clock())
        self._start_at = self._clock() + _WINDOW_SECONDS if again is None else again
        if why not in self._reported:
            self._reported.add(why)
            self._report(f"{why}; see {self._folder / _LOG}")


def _added_by(script: Path, environment: Mapping[str, str]) -> frozenset[Import]:
    """Imports of a script that take time, beside what all tasks need."""
    ours = sys.stdlib_module_names | frozenset(BASE)
    more = frozenset(environment.get(MORE_VARIABLE, "").split())
    ahead = imports_ahead(script, environment)
    return frozenset(found for found in ahead if found.top not in ours or found.name in more)


def _packages_stamp() -> tuple[int, ...]:
    """Changes when a package is installed, replaced or removed."""
    folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    stamps = []
    for folder in folders:
        with suppress(OSError):
            stamps.append(Path(folder).stat().st_mtime_ns)
    return tuple(stamps)
