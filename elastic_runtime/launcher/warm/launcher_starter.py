"""Starter of launchers: the agent's side of its launcher server, which it starts, asks, and does without.

Whatever is wrong with the server, launchers start all the same, by themselves; why is told once. What scripts import
is learned as they come: when there is something new, another server imports all of it, and takes the place of this one
once it is ready. One that was started before packages were installed is replaced likewise.
"""

from __future__ import annotations

import math
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic_runtime.launcher.settings import RestartLimit
from elastic_runtime.launcher.warm.launcher_process import ROOM_BYTES, LauncherProcess, ServerGone
from elastic_runtime.launcher.warm.launcher_server import LAUNCHER
from elastic_runtime.launcher.warm.script_imports import Import, imports_ahead

_UNBUFFERED = "PYTHONUNBUFFERED"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_READ_WHEN_USED = ("ELASTIC_", _UNBUFFERED, "CUDA_VISIBLE_DEVICES", *_THREADS)
"""How variables begin that may differ between the server and a launcher: nothing that is loaded has looked at them, or
it is told anew. Buffers are off in the server, and in all tasks."""
_MOST_IMPORTS = 100
_WINDOW_SECONDS = 600.0


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
    """One agent's launcher server; used from one thread.

    Args:
        environment: of this process, that launchers inherit too.
        folder: where its log is.
        shown: the variable by which others find a launcher, and what it started.
        tell: is told in a line why launchers start without the server.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        shown: str,
        tell: Callable[[str], None],
        settings: StarterSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = {
            **{name: value for name, value in environment.items() if name != shown},
            **dict.fromkeys(_THREADS, "1"),
            _UNBUFFERED: "1",
        }
        self._folder = folder
        self._shown = shown
        self._tell = tell
        self._settings = settings or StarterSettings()
        self._clock = clock
        self._server: LauncherProcess | None = None
        self._next: LauncherProcess | None = None
        self._imports: frozenset[Import] = frozenset()
        self._refused: frozenset[Import] = frozenset()
        self._packages = _packages_stamp()
        self._needed_at = clock()
        self._restarts = RestartLimit(self._settings.restarts, _WINDOW_SECONDS, 1.0, 60.0)
        self._start_at = clock() if sys.platform == "linux" else math.inf
        self._told: set[str] = set()

    @property
    def pid(self) -> int | None:
        """The process number of the server that forks, or will; None if there is none."""
        return None if self._server is None else self._server.pid

    @property
    def is_ready(self) -> bool:
        """Whether a launcher could be forked now."""
        return self._server is not None and self._server.ready

    def look(self, *, needed: bool) -> None:
        """See how the server is; start it where it is needed, and end it where it was not for long."""
        now = self._clock()
        if needed:
            self._needed_at = now
        if now >= self._needed_at + self._settings.rest_seconds:
            self.close()
            return
        self._hear(now)
        if (stamp := _packages_stamp()) != self._packages:
            self._packages, self._refused = stamp, frozenset()
            self.close()
        if self._server is None:
            if now >= self._start_at:
                self._server = self._begin(self._imports)
        elif self._server.ready and self._next is None and self._imports > self._server.imports:
            self._next = self._begin(self._imports)

    def start(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: int,
        kept: Sequence[int],
        script: Path,
    ) -> int | None:
        """Fork a launcher; its process number, or None: it is to be started without the server.

        Args:
            output: descriptor for what it writes.
            kept: descriptors that it holds as long as it lives, and nothing else of the job does.
            script: of the job.
        """
        self._learn(script)
        self._hear(self._clock())
        server = self._server
        if server is None or not server.ready or not self._fits(command, folder, environment):
            return None
        request = {
            "arguments": list(command[3:]),
            "environment": {**environment, _UNBUFFERED: "1"},
            "folder": str(folder),
            "shown": [self._shown, environment[self._shown]],
        }
        try:
            return server.fork(request, (output, output, *kept), self._settings.answer_seconds)
        except ServerGone as error:
            self._on_death(str(error))
            return None

    def close(self) -> None:
        """End the server; launchers stay."""
        for server in (self._server, self._next):
            if server is not None:
                server.close()
        self._server = self._next = None

    def _begin(self, imports: frozenset[Import]) -> LauncherProcess | None:
        deadline = self._clock() + self._settings.start_seconds
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return LauncherProcess(self._environment, imports, self._folder / "launcher-server.log", deadline)
        except OSError as error:
            self._on_death(f"no process can be started: {error}")
            return None

    def _hear(self, now: float) -> None:
        """What the servers say; the next one takes its place when it is ready."""
        if self._next is not None:
            try:
                self._next.hear(now)
            except ServerGone:  # what it was to import is left to the scripts
                self._refused |= self._next.imports
                self._imports -= self._refused
                self._next.close()
                self._next = None
            else:
                if self._next.ready:
                    before, self._server, self._next = self._server, self._next, None
                    if before is not None:
                        before.close()
        if self._server is not None:
            try:
                self._server.hear(now)
            except ServerGone as error:
                self._imports -= self._server.imports  # perhaps it was one of these
                self._on_death(str(error))

    def _learn(self, script: Path) -> None:
        found = frozenset(imports_ahead(script)) - self._refused
        if not found <= self._imports and len(self._imports | found) <= _MOST_IMPORTS:
            self._imports |= found

    def _fits(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> bool:
        if list(command[:3]) != [sys.executable, "-m", LAUNCHER] or not folder.is_dir():
            return False
        if len(os.fsencode(f"{self._shown}={environment.get(self._shown, '')}")) > ROOM_BYTES:
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
        self._start_at = math.inf if again is None else again
        if why not in self._told:
            self._told.add(why)
            self._tell(why)


def _packages_stamp() -> tuple[int, ...]:
    """Changes when a package is installed, replaced or removed."""
    folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    return tuple(os.stat(folder).st_mtime_ns for folder in folders if os.path.isdir(folder))  # noqa: PTH112, PTH116
