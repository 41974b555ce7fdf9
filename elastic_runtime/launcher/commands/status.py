"""Status of jobs for people and programs: `elastic-run status` and `elastic-run list`, once or again and again.

What draws is loaded where there is something to show: a refusal needs none of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elastic_runtime.errors import BadInput, ElasticError
from elastic_runtime.launcher.commands.options import TIMEOUT_SECONDS, Folder, Job, Timeout, jobs_of
from elastic_runtime.launcher.job_folder import JobFolder, all_jobs, holder_of, open_job
from elastic_runtime.launcher.job_status import job_facts, resting_facts
from foundation.output import Form, Output, show
from foundation.output import watch as show_again

if TYPE_CHECKING:
    from foundation.tables import FittedTable

_LIST_SECONDS = 2.0
"""A job that does not answer by then is listed by what its folder says."""
Every = Annotated[float, typer.Option("--every", min=0.1, max=3600.0, help="Seconds between two looks.")]


def status(
    name: Job,
    folder: Folder = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until the job runs no longer.")] = False,
    every_seconds: Every = 1.0,
    output: Output = Form.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """How a job is doing: its phase, size, steps, speed, tasks and requests."""
    job = open_job(jobs_of(folder), name)
    from elastic_runtime.launcher.commands.job_tables import job_table  # noqa: PLC0415

    table = partial(job_table, whole=output is not Form.TABLE)
    if watch:
        show_again(_polls(job, every_seconds, timeout), table, output)
    else:
        facts = job_facts(job, timeout)
        show(output, facts, lambda: table(facts))


def list_jobs(
    folder: Folder = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every_seconds: Every = 2.0,
    output: Output = Form.TABLE,
) -> None:
    """All jobs of the folder, the oldest first."""
    jobs = jobs_of(folder)
    if watch:
        show_again(_list_polls(jobs, every_seconds), partial(_list_shown, jobs), output, _table)
    else:
        rows = _all_facts(jobs)
        show(output, rows, partial(_list_shown, jobs, rows), partial(_table, rows))


def _list_shown(jobs: Path, rows: list[dict[str, Any]]) -> FittedTable | str:
    return _table(rows) if rows else f"there is no job in {jobs}"


def _table(rows: list[dict[str, Any]]) -> FittedTable:
    from elastic_runtime.launcher.commands.job_tables import jobs_table  # noqa: PLC0415

    return jobs_table(rows)


def _all_facts(jobs: Path) -> list[dict[str, Any]]:
    return [_brief(job, _LIST_SECONDS) for job in all_jobs(jobs)]


def _brief(job: JobFolder, timeout_seconds: float) -> dict[str, Any]:
    """One job that cannot be asked does not hide the others, and one that cannot be asked now may answer later."""
    try:
        return job_facts(job, timeout_seconds)
    except ElasticError:
        facts = {**resting_facts(job), "phase": "unreachable"}
        with contextlib.suppress(BadInput):
            facts["launcher"] = holder_of(job.path)
        return facts


def _list_polls(jobs: Path, every_seconds: float) -> Iterator[list[dict[str, Any]]]:
    while True:
        yield _all_facts(jobs)
        time.sleep(every_seconds)


def _polls(job: JobFolder, every_seconds: float, timeout_seconds: float) -> Iterator[dict[str, Any]]:
    """One that does not answer at first is an error; later it may answer again."""
    facts = job_facts(job, timeout_seconds)
    yield facts
    while facts["launcher"] is not None:
        time.sleep(every_seconds)
        facts = _brief(job, timeout_seconds)
        yield facts
