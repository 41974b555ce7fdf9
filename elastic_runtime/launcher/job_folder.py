"""What a job keeps on disk, all below one folder that only its owner may enter.

JOBS/NAME/job.json          what was asked for: script, arguments, options; enough to start the job again
          token             secret of the job's control plane, 0600
          coordinator.json  where the coordinator listens now
          coordinator/      the coordinator's journal
          checkpoints/      unless --checkpoints names another place
          logs/TASK.log     what each task wrote; TASK.log.1 before that
          state.json        how far it had come when its launcher last looked
          lock              held by the one launcher that looks after the job
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from elastic_runtime.control.credentials import read_token
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.errors import JobBusy, NoSuchJob

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")
"""Fits a host's label, and so a Kubernetes name."""
_MOST_OF_A_NAME = 100_000
_SHOWN_JOBS = 10


class JobFolder:
    """One job's folder; makes nothing by itself, see `create` and `open_job`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.record_file = path / "job.json"
        self.token_file = path / "token"
        self.address_file = path / "coordinator.json"
        self.journal_folder = path / "coordinator"
        self.checkpoint_folder = path / "checkpoints"
        self.log_folder = path / "logs"
        self.state_file = path / "state.json"

    def record(self) -> dict[str, Any]:
        """What the job was started with.

        Raises:
            BadInput: damaged, or not there.
        """
        found = read_json(self.record_file)
        if found is None:
            raise BadInput(f"{self.record_file}: is no record of a job; remove {self.path} and start the job anew")
        return found

    def token(self) -> str:
        """The job's secret.

        Raises:
            BadInput: it cannot be read, or is none.
        """
        return read_token(self.token_file)


def jobs_folder(stated: Path | None, environment: Mapping[str, str]) -> Path:
    """Where jobs live: as stated, else below $XDG_STATE_HOME, else below ~/.local/state."""
    if stated is not None:
        return stated.absolute()
    state = environment.get("XDG_STATE_HOME", "")
    # The standard says that a relative one is to be ignored.
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    return base / "fedl2" / "jobs"


def create(jobs: Path, name: str | None, script: Path, record: Mapping[str, Any]) -> JobFolder:
    """Make a new job's folder, with its token and its record.

    Args:
        name: the job's; from the script's name and a counter if None.

    Raises:
        BadInput: the name is taken or is none, or the folder cannot be written.
    """
    try:
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = JobFolder(_claimed(jobs, name, script))
        folder.path.chmod(0o700)  # also where the umask took more away, or less
        for inner in (folder.journal_folder, folder.log_folder):
            inner.mkdir(mode=0o700)
        write_private(folder.token_file, secrets.token_urlsafe(32))
        write_json(folder.record_file, {"name": folder.name, **record})
    except OSError as error:
        raise BadInput(
            f"{error.filename or jobs}: no job can be kept there ({error.strerror}); name another --folder"
        ) from error
    return folder


def open_job(jobs: Path, name: str) -> JobFolder:
    """The folder of a job that was started before.

    Raises:
        NoSuchJob: there is none of that name; the message names those that there are.
    """
    folder = JobFolder(jobs / name)
    if NAME.fullmatch(name) is None or not folder.record_file.exists():
        there = [job.name for job in all_jobs(jobs)]
        shown = ", ".join(there[-_SHOWN_JOBS:]) + (f" and {len(there) - _SHOWN_JOBS} more" * (len(there) > _SHOWN_JOBS))
        raise NoSuchJob(f"{name}: no such job in {jobs}; " + (f"there are {shown}" if there else "there is none"))
    return folder


def all_jobs(jobs: Path) -> list[JobFolder]:
    """Every job below a folder, the oldest first; a folder that is not there yet holds none.

    Raises:
        BadInput: it is no folder, or cannot be read.
    """
    try:
        inside = list(jobs.iterdir())
        records = sorted((job / "job.json" for job in inside if (job / "job.json").exists()), key=_written)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"{jobs}: jobs cannot be looked for there ({error.strerror}); name another --folder") from error
    return [JobFolder(record.parent) for record in records]


def _written(record: Path) -> int:
    try:
        return record.stat().st_mtime_ns
    except FileNotFoundError:  # removed meanwhile
        return 0


def read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object; None if it is not there, or no such thing (yet)."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put a small JSON object in a file's place, whole or not at all."""
    write_private(path, json.dumps(content, indent=1) + "\n")


def write_private(path: Path, text: str) -> None:
    """Put a text in a file's place, whole or not at all, for nobody else to read."""
    new = path.with_name(path.name + ".new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)


def _claimed(jobs: Path, name: str | None, script: Path) -> Path:
    if name is not None:
        if NAME.fullmatch(name) is None:
            raise BadInput(f"--name {name}: a name has at most 62 of a-z, 0-9 and -, and begins and ends with no -")
        try:
            (jobs / name).mkdir(mode=0o700)
        except FileExistsError as error:
            raise BadInput(
                f"--name {name}: there is such a job in {jobs}; `elastic-run resume {name}`, or take another name"
            ) from error
        return jobs / name
    stem = re.sub(r"[^a-z0-9]+", "-", script.stem.lower()).strip("-")[:40].strip("-") or "job"
    for number in range(1, _MOST_OF_A_NAME):
        try:
            (jobs / f"{stem}-{number}").mkdir(mode=0o700)
        except FileExistsError:
            continue
        return jobs / f"{stem}-{number}"
    raise BadInput(f"{jobs}: holds {_MOST_OF_A_NAME} jobs named {stem}; remove old ones, or give a --name")


# DOC of elastic_runtime.launcher.job_folder:
# One launcher a job: a lock that the system drops by itself when its holder dies, however it dies.

LOCK_FILE = "lock"
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.05
"""Whoever only asks for the holder has the lock for an instant; that is no holder."""


class JobLock:
    """Holds a job's folder; leaving the context, or dying, gives it back.

    The file holds the holder's process number, for messages and for `elastic-run stop`; whether anybody holds the lock
    is asked of the system, so that a number left behind by a dead launcher means nothing.

    Raises:
        JobBusy: another living launcher has it.
        BadInput: there can be no lock.
    """

    def __init__(self, folder: Path) -> None:
        self._job = folder.name
        # Not inherited by children (the default), or a task that lingers would hold its launcher's lock.
        try:
            self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            _lock(self._file)
        except BlockingIOError as error:
            holder = _number_in(self._file)
            os.close(self._file)
            raise JobBusy(
                f"job {self._job}: process {holder or 'of another elastic-run'} looks after it already; "
                f"ask it with `elastic-run status {self._job}`"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the job back; once is enough."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _lock(file: int) -> None:
    for _ in range(_TRIES - 1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_TRIES_SECONDS)
        else:
            return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder_of(folder: Path) -> int | None:
    """Process number of the launcher that looks after a job now; None if none does.

    Raises:
        BadInput: it cannot be asked for.
    """
    try:
        file = os.open(folder / LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _number_in(file)
    else:
        return None
    finally:
        os.close(file)


def _unusable(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"{folder / LOCK_FILE}: cannot be used ({error.strerror}); only the job's owner may ask it")


def _number_in(file: int) -> int | None:
    text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None
