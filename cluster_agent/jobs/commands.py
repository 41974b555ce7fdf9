"""The commands `cluster-agent jobs`, `job`, `logs`, `cancel`, `suspend`, `resume` and `delete`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_agent.errors import JobRefused
from cluster_agent.jobs.client import POLL_SECONDS, JobClient, check_done
from cluster_agent.jobs.job_logs import JobLogs, with_last_words
from cluster_agent.jobs.options import Name, Names, Socket, Watch
from cluster_agent.jobs.views import job_table, jobs_table, one_job
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

_WATCH_SECONDS = 1.0
_MOST_LINES = 1_000_000


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
    with JobClient(socket) as client:
        facts = client.call("jobs", {"name": name})["jobs"][0]
        written = JobLogs(Path(facts["log"]), Path(facts["logs"]), task, tail)
        while follow and not written.files and not facts["ended"]:
            _print_new(written, last=False)  # what begins from now on is shown from its first line on
            time.sleep(POLL_SECONDS)
            facts = client.call("jobs", {"name": name})["jobs"][0]
        if not written.files:
            raise JobRefused(_nothing_written(name, task, Path(facts["logs"])))
        while True:
            # Asked before it is read: what was written before the end is read after it.
            if follow:
                facts = client.call("jobs", {"name": name})["jobs"][0]
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
    with JobClient(socket) as client:
        for name in chosen if len(chosen) > 1 else ():
            client.call("jobs", {"name": name})  # a name that is none ends nobody
        for name in chosen:
            cancelled.append(client.call("cancel", {"name": name}))
            if output.for_people:
                show(output, cancelled[-1], _said_of("cancel", name, cancelled[-1]))
    if not output.for_people:
        show(output, cancelled[0] if len(chosen) == 1 else cancelled, "", partial(jobs_table, cancelled))


def suspend_job(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Hold a job: it writes a checkpoint, and what it had goes to others."""
    _act("suspend", name, socket, output)


def resume(name: Name, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Let a held job be scheduled again."""
    _act("resume", name, socket, output)


def delete(names: Names, socket: Socket = None, output: Output = Form.TABLE) -> None:
    """Remove jobs that have ended, with their logs and checkpoints; their names are free again."""
    chosen = list(dict.fromkeys(names))
    deleted = []
    with JobClient(socket) as client:
        for name in chosen:
            # A name that is none, or of a job that has not ended, removes nobody.
            facts = client.call("jobs", {"name": name})["jobs"][0]
            if not facts["ended"] and len(chosen) > 1:
                raise JobRefused(f"{name} has not ended, so none is deleted; end it with `cluster-agent cancel {name}`")
        for name in chosen:
            deleted.append(client.call("delete", {"name": name}))
            if output.for_people:
                show(output, deleted[-1], f"{name} is deleted")
    if not output.for_people:
        show(output, deleted[0] if len(chosen) == 1 else deleted, "", partial(jobs_table, deleted))


def _act(method: str, name: str, socket: Path | None, output: Form) -> None:
    with JobClient(socket) as client:
        facts = client.call(method, {"name": name})
    show(output, facts, _said_of(method, name, facts), partial(jobs_table, [facts]))


def _said_of(method: str, name: str, facts: dict[str, Any]) -> str:
    """What became of a job, in a line."""
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
    with JobClient(socket) as client:
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
