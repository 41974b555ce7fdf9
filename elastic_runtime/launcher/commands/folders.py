"""Commands on what a job's folder holds: `elastic-run logs` shows what its tasks wrote, `delete` removes all of it."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.commands.options import (
    Anyway,
    Folder,
    Job,
    Jobs,
    jobs_of,
    open_own_job,
)
from elastic_runtime.launcher.job_folder import (
    JobBusy,
    JobFolder,
    JobLock,
    all_jobs,
    holder_of,
    launcher_lock,
    open_job,
    read_json,
)
from elastic_runtime.launcher.job_status import resting_facts
from elastic_runtime.protocol.plan import JobPhase
from foundation.growing_file import GrowingFile
from foundation.output import Form, Output, show

_POLL_SECONDS = 0.2
"""Between two looks at logs that are followed; no slower than a reader."""
_MOST_LINES = 1_000_000
_MOST_RANKS = 1_000_000
_SHOWN_TASKS = 20


def logs(
    name: Job,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, max=_MOST_RANKS, help="Of this worker alone: 0 is worker-0.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Of this process alone, such as ps-0 or coordinator.")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until nothing of the job runs.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("-n", "--tail", min=0, max=_MOST_LINES, help="Of each process so many last lines."),
    ] = None,
    folder: Folder = None,
) -> None:
    """Print what a job's processes wrote, each line behind its process's name.

    Lines of one process alone stand without its name. Followed to its end, a job that failed gives exit code 1.
    """
    if rank is not None and task is not None:
        raise BadInput("--rank and --task do not go together: --rank 0 is --task worker-0")
    job = open_job(jobs_of(folder), name)
    written = TaskLogs(job, f"worker-{rank}" if rank is not None else task, tail)
    runs = holder_of(job.path) is not None
    if not written.there() and not (follow and runs):
        raise BadInput(written.nothing())
    while True:
        # Asked before it is read: what was written before the end is read after it.
        runs = follow and holder_of(job.path) is not None
        written.print_new(last=not runs)
        if not runs:
            break
        time.sleep(_POLL_SECONDS)
    if follow and resting_facts(job)["phase"] == JobPhase.FAILED.value:
        raise ElasticError(f"{name} has failed; `elastic-run status {name}` says what is known of it")


class TaskLogs:
    """Logs of a job's processes, or of one of them, which are printed as they grow.

    Args:
        process: whose alone; None: everybody's, also of those that begin later.
        tail: lines of each that are there at the first look; None: all.
    """

    def __init__(self, job: JobFolder, process: str | None, tail: int | None) -> None:
        self._job = job
        self._process = process
        self._tail = tail
        self._files: dict[Path, GrowingFile] = {}

    def there(self) -> list[Path]:
        """The logs that there are, by name."""
        found = sorted(self._job.log_folder.glob("*.log"))
        return found if self._process is None else [path for path in found if path.stem == self._process]

    def nothing(self) -> str:
        """Why there is nothing to print."""
        if self._process is None:
            return f"{self._job.name}: nothing of it has written anything yet"
        names = [path.stem for path in sorted(self._job.log_folder.glob("*.log"))]
        shown = ", ".join(names[:_SHOWN_TASKS]) + (
            f" and {len(names) - _SHOWN_TASKS} more" * (len(names) > _SHOWN_TASKS)
        )
        return f"{self._job.name}: there is no log of {self._process!r}" + (f"; there are {shown}" if names else "")

    def print_new(self, *, last: bool) -> None:
        """Print new lines.

        Raises:
            BadInput: a log cannot be read.
        """
        sys.stdout.flush()
        for path in self.there():
            if path not in self._files:
                self._files[path] = GrowingFile(path, self._tail)
            prefix = b"" if self._process is not None else f"{path.stem} | ".encode()
            try:
                for line in self._files[path].read(last=last):
                    sys.stdout.buffer.write(prefix + line)
            except BrokenPipeError:
                raise
            except OSError as error:
                if error.filename is None:  # of the output, not of the log
                    raise
                raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
        sys.stdout.buffer.flush()
        self._tail = None  # of who begins from now on everything is new


def delete(
    names: Jobs,
    folder: Folder = None,
    output: Output = Form.TABLE,
    anyway: Anyway = False,
) -> None:
    """Remove jobs that do not run: their folders with their logs, and the checkpoints that are in them."""
    jobs = jobs_of(folder)
    # A name that is none removes nobody.
    found = [open_own_job(folder, name, "delete", anyway=anyway) for name in dict.fromkeys(names)]
    records = []
    for job in found:
        record, line = _delete(jobs, job)
        records.append(record)
        if output.for_people:
            show(output, record, line)
    if not output.for_people:
        show(output, records[0] if len(records) == 1 else records, "", records)


def _delete(jobs: Path, job: JobFolder) -> tuple[dict[str, Any], str]:
    """Remove a job; a record of that, and a line.

    Raises:
        BadInput: it runs, another job needs its checkpoints, or it cannot be removed.
    """
    name = job.name
    if job.path.is_symlink():
        raise BadInput(f"{job.path}: is a link to another folder; remove the link, or what it names, by hand")
    try:
        lock = JobLock(job.path)
    except JobBusy as error:
        raise BadInput(f"{name} runs; end it first with `elastic-run stop {name}`, then delete it") from error
    with lock:
        user = _who_needs(jobs, job)
        if user is not None:
            raise BadInput(
                f"{job.path}: job {user} keeps or takes checkpoints in it; delete {user} first, or copy them and start"
                f" {user} from there with --checkpoints"
            )
        elsewhere = _checkpoints_elsewhere(job)
        # Under another name nobody finds it half removed, and its name is free for the next job.
        doomed = jobs / f".deleted-{name}-{secrets.token_hex(4)}"
        try:
            job.path.rename(doomed)
            launcher_lock(jobs, name).unlink(missing_ok=True)  # of an agent that is gone; the name is free of it too
            JobFolder(doomed).record_file.unlink()
            shutil.rmtree(doomed)
            for left in jobs.glob(".deleted-*"):
                if not JobFolder(left).record_file.exists():  # of a deletion that was killed, or goes on right now
                    shutil.rmtree(left, ignore_errors=True)  # another deletion may remove it at the same time
        except KeyboardInterrupt:
            print(f"{doomed}: is half removed; the next `elastic-run delete` removes the rest", file=sys.stderr)
            raise
        except OSError as error:
            raise BadInput(
                f"{error.filename or doomed}: cannot be removed ({error.strerror}); remove it by hand"
            ) from error
    stay = "" if elsewhere is None else f"; its checkpoints in {elsewhere} stay"
    record = {"job": name, "deleted": True, "checkpoints_left": None if elsewhere is None else str(elsewhere)}
    return record, f"{name} is deleted{stay}"


def _who_needs(jobs: Path, job: JobFolder) -> str | None:
    """Another job whose checkpoints lie in this one's folder, as of a job that was begun from them; its name."""
    own = job.path.resolve()
    for other in all_jobs(jobs):
        named = (read_json(other.record_file) or {}).get("checkpoints")
        if other.path.resolve() != own and isinstance(named, str) and Path(named).resolve().is_relative_to(own):
            return other.name
    return None


def _checkpoints_elsewhere(job: JobFolder) -> Path | None:
    """The folder of a job's checkpoints, if it is there and not in the job's; a damaged record names none."""
    named = (read_json(job.record_file) or {}).get("checkpoints")
    if not isinstance(named, str) or not Path(named).is_dir():
        return None
    return None if Path(named).resolve().is_relative_to(job.path.resolve()) else Path(named)
