"""Folder of a job, which only its owner may enter: what it keeps on disk, and the lock of its one launcher.

JOBS/NAME/job.json          what was asked for: script, arguments, options; enough to start the job again
          token             secret of the job's control plane, 0600
          coordinator.json  where the coordinator listens now
          control           its Unix socket, unless it listens on a port
          coordinator/      the coordinator's journal
          checkpoints/      unless --checkpoints names another place
          logs/TASK.log     what each task wrote; TASK.log.1 before that
          state.json        how far it had come when its launcher last looked
          lock              held by the one launcher that looks after the job

The job's script may write there too, so that nothing in it is believed: only ordinary files are opened, and neither the
folder nor what is in it is followed where it is a link.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastic_runtime.control.credentials import read_token
from elastic_runtime.errors import BadInput
from foundation.files import PRIVATE, read_ordinary, write_whole
from foundation.locks import FileLock, LockHeld, lock_holder
from foundation.text import nearest, parse_json, with_checksum, without_checksum

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")
"""Fits a host's label, and so a Kubernetes name."""
_MOST_OF_A_NAME = 100_000
_SHOWN_JOBS = 10
LOCK_FILE = "lock"
AGENT_MARK = "CLUSTER_AGENT_JOB"
"""Names in the environment of all processes that a cluster agent starts for a job that job's folder."""


class NoSuchJob(BadInput):
    """The folder of jobs holds none of that name."""


class JobBusy(BadInput):
    """Another `elastic-run` looks after the job already."""


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

    @property
    def has_record(self) -> bool:
        """Whether it holds a job, whatever has become of its record, or of the right to look at that."""
        try:
            self.record_file.lstat()
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def log_file(self, process: str) -> Path:
        """What a task, or the coordinator, wrote."""
        return self.log_folder / f"{process}.log"

    def record(self) -> dict[str, Any]:
        """What the job was started with.

        Raises:
            BadInput: damaged, or not there.
        """
        try:
            found = parse_json(read_own(self.record_file))
        except OSError as error:
            raise BadInput(_no_record(self, f": {error.strerror}")) from error
        except ValueError as error:
            raise BadInput(_no_record(self)) from error
        if not isinstance(found, dict):
            raise BadInput(_no_record(self))
        try:
            return without_checksum(found)
        except ValueError as error:
            raise BadInput(
                f"{self.record_file}: {error}; start the job anew, or remove the line that has it"
            ) from error

    def token(self) -> str:
        """The job's secret.

        Raises:
            BadInput: it cannot be read, or is none.
        """
        return read_token(self.token_file, read_own)


class FolderPlace:
    """A folder that a launcher looks after, by its identity: its script may put something else under the name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first = self._poll()

    def check(self) -> None:
        """See that nothing else stands in its place; nothing at all may.

        Raises:
            BadInput: something does, and what would be written there would be another's.
        """
        now = self._poll()
        if now is not None and (self._first is None or not os.path.samestat(now, self._first)):
            raise BadInput(f"{self._path}: something else was put in the place of the job's folder; the job is ended")

    def _poll(self) -> os.stat_result | None:
        try:
            return self._path.lstat()
        except OSError:
            return None


def jobs_folder(stated: Path | None, environment: Mapping[str, str]) -> Path:
    """Where jobs live: as stated, else below $XDG_STATE_HOME, else below ~/.local/state."""
    if stated is not None:
        return stated.absolute()
    state = environment.get("XDG_STATE_HOME", "")
    # The standard says that a relative one is to be ignored.
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    return base / "fedl2" / "jobs"


def launcher_lock(jobs: Path, name: str) -> Path:
    """The lock that a cluster agent hands to the launcher of a job that it keeps; it stays as long as the job."""
    return jobs / f"{name}.launcher.lock"


def is_kept(folder: JobFolder) -> bool:
    """Whether a cluster agent decides when and with what the job runs, also while that agent does not run."""
    return launcher_lock(folder.path.parent, folder.name).exists()


def check_not_kept(folder: JobFolder, instead: Sequence[str], environment: Mapping[str, str], *, anyway: bool) -> None:
    """Refuse to start, resize or end a job behind the back of the agent that keeps it.

    Args:
        instead: commands of `cluster-agent` that fit what was wanted.
        environment: which says whether that agent itself started this process.

    Raises:
        BadInput: the agent is to be asked.
    """
    if anyway or not is_kept(folder) or environment.get(AGENT_MARK) == str(folder.path.absolute()):
        return
    ways = " or ".join(f"`cluster-agent {word} {folder.name}`" for word in instead)
    raise BadInput(
        f"{folder.name}: a cluster agent keeps this job and decides what it has; use {ways}, or give --anyway if that "
        "agent is gone for good"
    )


def resume_command(folder: JobFolder, environment: Mapping[str, str], *, anyway: bool = False) -> str:
    """Command that goes on with a job: with its folder of jobs where that is not the usual one.

    A job that an agent keeps goes on by that agent alone, or its cores would be used twice.
    """
    kept = is_kept(folder)
    if kept and not anyway:
        return f"cluster-agent resume {folder.name}"
    usual = environment.get("ELASTIC_JOBS", "")
    jobs = folder.path.parent
    is_usual = jobs == jobs_folder(Path(usual) if usual else None, environment)
    command = f"elastic-run resume {folder.name}" + (" --anyway" if kept else "")
    return command + ("" if is_usual else f" --folder {shlex.quote(str(jobs))}")


def create(jobs: Path, name: str | None, script: Path, record: Mapping[str, Any]) -> JobFolder:
    """Make a new job's folder, with its token and its record; a job without a name gets the script's, and a counter.

    Raises:
        BadInput: the name is taken or is none, or the folder cannot be written.
    """
    try:
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = JobFolder(_claimed(jobs, name, script))
        folder.path.chmod(0o700)  # also where the umask took more away, or less
        for inner in (folder.journal_folder, folder.log_folder):
            inner.mkdir(mode=0o700)
        write_whole(folder.token_file, secrets.token_urlsafe(32), durable=False, mode=PRIVATE)
        write_json(folder.record_file, with_checksum({"name": folder.name, **record}))
    except OSError as error:
        raise BadInput(
            f"{error.filename or jobs}: no job can be kept there ({error.strerror}); name another --folder"
        ) from error
    return folder


def open_job(jobs: Path, name: str) -> JobFolder:
    """The folder of a job that was started before.

    Raises:
        NoSuchJob: there is none of that name; the message names the one that is meant, or those that there are.
    """
    folder = JobFolder(jobs / name)
    if NAME.fullmatch(name) is None or not folder.has_record:
        if (jobs / "job.json").exists():
            raise NoSuchJob(f"{jobs}: is the folder of one job; name the one that it lies in: --folder {jobs.parent}")
        there = [job.name for job in all_jobs(jobs)]
        shown = ", ".join(there[-_SHOWN_JOBS:]) + (f" and {len(there) - _SHOWN_JOBS} more" * (len(there) > _SHOWN_JOBS))
        near = nearest(name, there)
        meant = f"did you mean {near}? " if near else ""
        raise NoSuchJob(
            f"{name}: no such job in {jobs}; {meant}" + (f"there are {shown}" if there else "there is none")
        )
    return folder


def all_jobs(jobs: Path) -> list[JobFolder]:
    """All jobs of a folder, the oldest first; none where it is not there yet.

    Raises:
        BadInput: it is no folder, or cannot be read.
    """
    try:
        inside = [JobFolder(path) for path in jobs.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"{jobs}: jobs cannot be looked for there ({error.strerror}); name another --folder") from error
    return sorted((job for job in inside if job.has_record), key=_written)


def _written(job: JobFolder) -> tuple[int, str, int]:
    """By time; the system's clock for files has ticks of milliseconds, and of one tick the counters tell the order."""
    stem, _, number = job.name.rpartition("-")
    counted = (stem, int(number)) if number.isdecimal() else (job.name, 0)
    try:
        return job.record_file.lstat().st_mtime_ns, *counted
    except OSError:  # removed meanwhile, or not to be looked at
        return 0, *counted


def read_own(path: Path) -> bytes:
    """A small file of a job's folder.

    Raises:
        OSError: it, or the folder, is not there, is something else, or cannot be read.
    """
    return read_ordinary(path, below=path.parent.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object of a job's folder; None if it is not there, or no such thing (yet)."""
    try:
        found = parse_json(read_own(path))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put a small JSON object in place, whole or not at all, for nobody else to read.

    Raises:
        OSError: it could not be written, or the folder is none.
    """
    text = json.dumps(content, indent=1) + "\n"
    write_whole(path, text, durable=False, mode=PRIVATE, below=path.parent.parent)


def remove_folder(path: Path) -> None:
    """Remove a job's folder with all that is in it, as far as that can be; of a link, the link alone."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


class JobLock(FileLock):
    """The lock of the one launcher that looks after a job; leaving the context, or dying, gives it back.

    The file holds the launcher's process number, for messages and for `elastic-run stop`.

    Raises:
        JobBusy: another living launcher has it.
        BadInput: there can be no lock.
    """

    def __init__(self, folder: Path) -> None:
        try:
            super().__init__(folder / LOCK_FILE, below=folder.parent)
        except LockHeld as error:
            raise JobBusy(
                f"job {folder.name}: process {error.holder or 'of another elastic-run'} looks after it already; "
                f"ask it with `elastic-run status {folder.name}`"
            ) from error
        except OSError as error:
            raise _unusable(error) from error


def holder_of(folder: Path) -> int | None:
    """Process number of the launcher that looks after a job now, if any.

    Raises:
        BadInput: it cannot be asked for.
    """
    try:
        return lock_holder(folder / LOCK_FILE, folder.parent)
    except OSError as error:
        raise _unusable(error) from error


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


def _unusable(error: OSError) -> BadInput:
    advice = "remove it, or put back what was there"
    if isinstance(error, PermissionError):
        advice = "only the job's owner may ask it"
    return BadInput(f"{error.filename}: cannot be used ({error.strerror}); {advice}")


def _no_record(job: JobFolder, why: str = "") -> str:
    return f"{job.record_file}: is no record of a job{why}; remove {job.path} and start the job anew"
