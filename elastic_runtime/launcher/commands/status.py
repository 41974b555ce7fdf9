"""`elastic-run status` and `elastic-run list`: how jobs are doing."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Annotated, Any

import typer
from rich.live import Live

from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.commands.options import (
    TIMEOUT_SECONDS,
    Debug,
    Folder,
    Job,
    Output,
    OutputOption,
    Timeout,
    console_of,
    jobs_of,
    show,
)
from elastic_runtime.launcher.job_folder import JobFolder, all_jobs, open_job
from elastic_runtime.launcher.job_lock import holder_of
from elastic_runtime.launcher.job_status import job_facts, resting_facts
from elastic_runtime.launcher.status_table import job_table, jobs_table

_LIST_SECONDS = 2.0
"""A job that does not answer by then is listed by what its folder says."""


def status(
    name: Job,
    folder: Folder = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until the job runs no longer.")] = False,
    every_seconds: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    debug: Debug = False,
) -> None:
    """How a job is doing: its phase, size, steps, speed, tasks and requests."""
    del debug
    job = open_job(jobs_of(folder), name)
    if watch:
        _watch(job, every_seconds, output, timeout)
    else:
        facts = job_facts(job, timeout)
        show(output, facts, job_table(facts))


def list_jobs(folder: Folder = None, output: OutputOption = Output.TABLE, debug: Debug = False) -> None:
    """All jobs of the folder, the oldest first."""
    del debug
    rows = [_brief(job, _LIST_SECONDS) for job in all_jobs(jobs_of(folder))]
    show(output, rows, jobs_table(rows) if rows else f"there is no job in {jobs_of(folder)}")


def _brief(job: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """One job that cannot be asked does not hide the others, and one that cannot be asked now may answer later."""
    try:
        return job_facts(job, timeout_seconds)
    except ElasticError:
        facts = {**resting_facts(job), "phase": "unreachable"}
        with contextlib.suppress(BadInput):
            facts["launcher"] = holder_of(job.path)
        return facts


def _watch(job: JobFolder, every_seconds: float, output: Output, timeout_seconds: float) -> None:
    facts = job_facts(job, timeout_seconds)
    if output is Output.JSON or not sys.stdout.isatty():
        _emit(facts, output)
        while facts["launcher"] is not None:
            time.sleep(every_seconds)
            facts = _brief(job, timeout_seconds)
            _emit(facts, output)
        return
    with Live(job_table(facts), console=console_of(terminal=True), auto_refresh=False) as live:
        while facts["launcher"] is not None:
            time.sleep(every_seconds)
            facts = _brief(job, timeout_seconds)
            live.update(job_table(facts), refresh=True)


def _emit(facts: dict[str, Any], output: Output) -> None:
    """One look; a JSON line each, so that a program can read them as they come."""
    if output is Output.JSON:
        print(json.dumps(facts, allow_nan=False), flush=True)
    else:
        show(output, facts, job_table(facts))
