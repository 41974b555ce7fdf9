"""Launchers of jobs: started so that they outlive the agent, and found again by a lock from their first instant on.

The lock is taken before the process is made, and handed to it: there is no moment in which a launcher runs and nobody
can tell. Whatever a launcher that was killed left behind carries the job's mark in its environment, and is ended by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from elastic_runtime.launcher.job_folder import AGENT_MARK, launcher_lock
from elastic_runtime.launcher.warm.launcher_starter import LauncherStarter
from foundation import kinship
from foundation.files import PRIVATE, open_ordinary
from foundation.locks import lock_holder

_log = structlog.get_logger()
_LOG_BYTES = 1024 * 1024
_SPACE_BYTES = 256 * 1024
"""A launcher's files, and those of its tasks until they train."""
UNKNOWN = 0
"""Stands for the process number of a launcher that has not said it yet."""


class Launchers:
    """Launchers that this process, or an agent before it, started; `warm` forks them, where it can."""

    def __init__(self, jobs: Path, warm: LauncherStarter | None = None) -> None:
        self._jobs = jobs
        self._warm = warm
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ends = select.poll()
        self._handles: set[int] = set()
        self._forked: set[int] = set()

    def spawn(
        self, job: str, command: list[str], folder: Path, environment: Mapping[str, str], script: Path | None = None
    ) -> int:
        """Start one in a session of its own, so that no signal to this process's terminal or group reaches it.

        Raises:
            OSError: it could not be started, or the job has a launcher.
        """
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_ordinary(self._lock_file(job), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            end_marked(self._mark(job))
            self._check_disk_space()
            marked = {**environment, AGENT_MARK: self._mark(job)}
            with launcher_log(self._jobs / f"{job}.launcher.log") as log:
                number = None
                if self._warm is not None:
                    number = self._warm.start(command, folder, marked, log, (lock,), script)
                forked = number is not None
                if number is None:
                    number = self._spawn_cold(job, command, folder, marked, log, lock)
            with contextlib.suppress(OSError):  # a full disk: the launcher's own lock will say it
                os.pwrite(lock, f"{number}\n".encode(), 0)
        finally:
            os.close(lock)
        with contextlib.suppress(OSError):  # it has ended, or is looked at from time to time only
            handle = os.pidfd_open(number)
            self._handles.add(handle)
            if forked:
                self._forked.add(handle)
            self._ends.register(handle, select.POLLIN)
        return number

    def have_any_ended(self) -> bool:
        """Whether any that this process started has ended since this was asked last."""
        ended = [handle for handle, _ in self._ends.poll(0)]
        for handle in ended:
            self._ends.unregister(handle)
            self._handles.remove(handle)
            if handle in self._forked:
                self._forked.remove(handle)
                with contextlib.suppress(OSError):  # it is this process's child only where that adopts orphans
                    os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)
            os.close(handle)
        return bool(ended)

    def poll(self, *, needed: bool) -> None:
        """Get ready to start a launcher soon, if one is `needed`; to be called again and again."""
        if self._warm is not None:
            self._warm.poll(needed=needed)

    def close(self) -> None:
        """Start no more; those that run stay."""
        if self._warm is not None:
            self._warm.close()
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
        self._forked.clear()
        self._ends = select.poll()

    def running(self, job: str) -> int | None:
        """The process number of a job's launcher, `UNKNOWN` where it is not known yet; None if there is none."""
        process = self._children.get(job)
        if process is not None and process.poll() is not None:
            del self._children[job]
        if not self._lock_file(job).exists():
            return None
        try:
            return lock_holder(self._lock_file(job)) or (UNKNOWN if _is_locked(self._lock_file(job)) else None)
        except OSError:
            return None

    def clear(self, job: str) -> None:
        """End whatever is left of a job that has no launcher."""
        if self.running(job) is None:
            end_marked(self._mark(job))

    def processes(self, job: str) -> list[int]:
        """Process numbers of all that run for a job."""
        return kinship.marked_processes(AGENT_MARK, self._mark(job))

    def cpu_seconds(self, job: str) -> float:
        """Processor time that the processes which run for a job have used."""
        return kinship.cpu_seconds(self.processes(job))

    def _spawn_cold(
        self, job: str, command: list[str], folder: Path, environment: Mapping[str, str], log: int, lock: int
    ) -> int:
        # `-P`: a `logging.py` in the folder where a job is started is the job's, and not the launcher's.
        process = self._children[job] = subprocess.Popen(  # noqa: S603  (the command is ours, the script the user's)
            [command[0], "-P", *command[1:]],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock,),
        )
        return process.pid

    def _check_disk_space(self) -> None:
        """A launcher that finds no room for what it has to note ends, which would look like a fault of the job."""
        probe = self._jobs / ".room"
        try:
            probe.write_bytes(bytes(_SPACE_BYTES))
        finally:
            probe.unlink(missing_ok=True)

    def _mark(self, job: str) -> str:
        return str(self._jobs.absolute() / job)

    def _lock_file(self, job: str) -> Path:
        return launcher_lock(self._jobs, job)


def end_marked(mark: str) -> int:
    """Kill all processes of this user that carry a job's mark; how many there were. Linux only."""
    ended = kinship.end_marked(AGENT_MARK, mark)
    if ended:
        _log.warning("leftovers-ended", job=Path(mark).name, processes=ended)
    return ended


def _is_locked(path: Path) -> bool:
    with open(open_ordinary(path), "rb") as file:  # noqa: PTH123  (it is open already)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextlib.contextmanager
def launcher_log(path: Path) -> Iterator[int]:
    """What launchers say, bounded: at its limit it becomes FILE.1."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))
    log = open_ordinary(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.fchmod(log, PRIVATE)  # an earlier agent made it for others to read
        yield log
    finally:
        os.close(log)
