"""The commands `cluster-agent jobs`, `job`, `logs`, `cancel`, `suspend`, `resume` and `delete`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_agent.errors import JobRefused
from cluster_agent.jobs.client import POLL_SECONDS, JobClient, Name, Names, Socket, Watch, check_done
from cluster_agent.jobs.views import job_table, jobs_table, one_job
from foundation.files import open_ordinary
from foundation.growing_file import GrowingFile
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

_WATCH_SECONDS = 1.0
_MOST_LINES = 1_000_000


_TAIL_BYTES = 4096


class JobLogs:
    """Reads what was written since it was last asked, at first only the last `tail` lines of each log.

    These are all logs, the launcher's too, unless a `task` is named.
    """

    def __init__(self, launcher: Path, tasks: Path, task: str = "", tail: int | None = None) -> None:
        self._launcher = launcher
        self._tasks = tasks
        self._task = task
        self._tail = tail
        self._read: dict[Path, GrowingFile] = {}
        self._reported: set[Path] = set()

    @property
    def files(self) -> list[Path]:
        """Those that are there: the launcher's, then tasks' by name."""
        if self._task:
            return [path for path in (self._tasks / f"{self._task}.log",) if path.exists()]
        return [path for path in (self._launcher, *sorted(self._tasks.glob("*.log"))) if path.exists()]

    def read(self, *, last: bool = True) -> Iterator[bytes]:
        """New lines, each with its end; at the `last` reading also a line that has no end yet."""
        for path in self.files:
            prefix = b"" if self._task or path == self._launcher else f"{path.stem} | ".encode()
            file = self._read.setdefault(path, GrowingFile(path, self._tail))
            try:
                for line in file.read(last=last):
                    yield prefix + line
            except OSError as error:  # a script may have put something else there; the others are read all the same
                if path not in self._reported:
                    yield f"{path}: cannot be read: {error.strerror}\n".encode()
                self._reported.add(path)
        self._tail = None  # of what begins from now on everything is new


def with_last_words(facts: dict[str, Any]) -> dict[str, Any]:
    """A job's facts, and `lastLine`: the newest line that any of its workers wrote, None if none did; and its time."""
    written = []
    for path in Path(facts["logs"]).glob("worker-*.log"):
        with contextlib.suppress(OSError):
            written.append((path.stat().st_mtime, path))
    lines = ((line, seconds) for seconds, path in sorted(written, reverse=True) if (line := _last(path)))
    newest = next(lines, None)
    return {**facts, "lastLine": newest and newest[0], "lastLineUnixSeconds": newest and newest[1]}


def _last(path: Path) -> str:
    """The last line of a file that is no launcher's; empty if there is none."""
    try:
        with FileIO(open_ordinary(path)) as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.strip() and not line.startswith("--- worker-")), "")


def jobs(
    active: Annotated[bool, typer.Option("--active", help="Only those that have not ended.")] = False,
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """List all jobs."""
    found = _asked(socket, {}, watch, active)
    if watch:
        show_again(found, job_table, output, jobs_table)
    else:
        all_jobs = next(found)
        show(output, all_jobs, lambda: job_table(all_jobs), lambda: jobs_table(all_jobs))


def job(
    name: Name,
    socket: Socket = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Show one job."""
    found = (with_last_words(jobs[0]) for jobs in _asked(socket, {"name": name}, watch))
    if watch:
        show_again(found, lambda facts: one_job(facts, time.time()), output)
    else:
        facts = next(found)
        show(output, facts, lambda: one_job(facts, time.time()))


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    task: Annotated[str, typer.Option(help="Of a task such as worker-0; of all, by its name, unless given.")] = "",
    tail: Annotated[
        int | None, typer.Option("-n", "--tail", min=0, max=_MOST_LINES, help="Of each task only so many last lines.")
    ] = None,
    socket: Socket = None,
) -> None:
    """Print what a job wrote, from its first start on; followed to its end, exit code 1 unless it is done."""
    client = JobClient(socket)
    facts = client.job(name)
    written = JobLogs(Path(facts["log"]), Path(facts["logs"]), task, tail)
    while follow and not written.files and not facts["ended"]:
        _print_new(written, last=False)  # what begins from now on is shown from its first line on
        time.sleep(POLL_SECONDS)
        facts = client.job(name)
    if not written.files:
        raise JobRefused(_nothing_written(name, task, Path(facts["logs"])))
    while True:
        # Asked before it is read: what was written before the end is read after it.
        if follow:
            facts = client.job(name)
        ended = facts["ended"] if follow else True
        _print_new(written, last=ended)
        if ended:
            break
        time.sleep(POLL_SECONDS)
    if follow:
        check_done(facts)


def _print_new(written: JobLogs, *, last: bool) -> None:
    for line in written.read(last=last):
        sys.stdout.buffer.write(line)
    sys.stdout.flush()


def cancel(names: Names, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """End jobs for good."""
    chosen = list(dict.fromkeys(names))
    cancelled = []
    client = JobClient(socket)
    for name in chosen if len(chosen) > 1 else ():
        client.job(name)  # a name that is none ends nobody
    for name in chosen:
        cancelled.append(client.call("cancel", {"name": name}))
        if output.for_people:
            show(output, cancelled[-1], _said_of("cancel", name, cancelled[-1]))
    if not output.for_people:
        show(output, cancelled[0] if len(chosen) == 1 else cancelled, "", partial(jobs_table, cancelled))


def suspend(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Hold a job: it writes a checkpoint, and what it had goes to others."""
    _act("suspend", name, socket, output)


def resume(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Let a held job be scheduled again."""
    _act("resume", name, socket, output)


def delete(names: Names, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Remove jobs that have ended, with their logs and checkpoints; their names are free again."""
    chosen = list(dict.fromkeys(names))
    deleted = []
    client = JobClient(socket)
    for name in chosen:
        # A name that is none, or of a job that has not ended, removes nobody.
        facts = client.job(name)
        if not facts["ended"] and len(chosen) > 1:
            raise JobRefused(f"{name} has not ended, so none is deleted; end it with `cluster-agent cancel {name}`")
    for name in chosen:
        deleted.append(client.call("delete", {"name": name}))
        if output.for_people:
            show(output, deleted[-1], f"{name} is deleted")
    if not output.for_people:
        show(output, deleted[0] if len(chosen) == 1 else deleted, "", partial(jobs_table, deleted))


def _act(method: str, name: str, socket: Path | None, output: Form) -> None:
    client = JobClient(socket)
    facts = client.call(method, {"name": name})
    show(output, facts, _said_of(method, name, facts), partial(jobs_table, [facts]))


def _said_of(method: str, name: str, facts: dict[str, Any]) -> str:
    waits = facts["state"] in ("queued", "suspended") and not (facts["held"] or facts["cancelling"])
    soon = ""
    if not facts["ended"]:
        soon = ", and is being cancelled" if facts["cancelling"] else ", and will be held" if facts["held"] else ""
        soon = "" if facts["state"] == "held" else soon
    verb = "has" if facts["state"] == "failed" else "is"
    line = f"{name} {verb} {facts['state']}{soon}"
    if method == "resume" and waits:
        line = f"{name} is no longer held, and waits for its turn"
    return line


def _asked(socket: Path | None, content: dict[str, Any], watch: bool, active: bool = False) -> Iterator[list[Any]]:
    """The jobs now, and with `watch` whenever something but the time has changed."""
    client = JobClient(socket)
    before = None
    while True:
        found = client.call("jobs", content)["jobs"]
        found = [job for job in found if not (active and job["ended"])]
        if sys.stdout.isatty() or _still(found) != before:
            yield found
        if not watch:
            return
        before = _still(found)
        time.sleep(_WATCH_SECONDS)


def _still(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the jobs what does not change by itself."""
    moving = ("samples", "progress")
    return [
        {key: value for key, value in job.items() if key not in moving and not key.endswith("Seconds")} for job in jobs
    ]


def _nothing_written(name: str, task: str, folder: Path) -> str:
    if not task:
        return f"{name}: has written nothing yet; it has not been started"
    known = ", ".join(sorted(path.stem for path in folder.glob("*.log")))
    return f"{name}: has written nothing as {task}" + (f"; its tasks are {known}" if known else "")
