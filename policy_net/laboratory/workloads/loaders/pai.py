"""Alibaba's PAI trace of 2020: the task table, and the job table for when jobs were submitted.

Source: the trace's own description; Weng et al., NSDI 2022 (MLaaS in the wild).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import MOST_GPUS, CsvRow, read_rows
from policy_net.laboratory.workloads.loaders.record import (
    INCOMPLETE,
    NEVER_STARTED,
    NO_GPU,
    UNFINISHED,
    AllocatedGpus,
    Intake,
    LeftOut,
    RecordedJob,
    Recording,
    as_one_request,
)
from policy_net.laboratory.workloads.loaders.values import moment, span

TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
"""The tables come without a header, in this order."""

NEEDED_TASK_COLUMNS = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu")
ACTIVE = frozenset({"running", "waiting"})
_ROUNDING = 1e-6


@dataclass(slots=True)
class _Job:
    line: int
    pieces: list[AllocatedGpus] = field(default_factory=list)
    left_out: str | None = None
    incomplete: bool = False


def read_pai(path: Path, strict: bool = False, job_table: str | None = None) -> Recording:
    """Read a `pai_task_table.csv`, with submission times from a `pai_job_table.csv` if one is given.

    Raises:
        BadInput: a file cannot be used; in strict reading, a row is malformed.
    """
    intake = Intake(path, strict, "job_name")
    submitted, users = _submissions(Path(job_table), intake) if job_table is not None else ({}, {})
    jobs: dict[str, _Job] = {}
    for row in read_rows(
        path, NEEDED_TASK_COLUMNS, intake.on_malformed, names_without_header=TASK_COLUMNS, whole_lines=True
    ):
        try:
            _add(row, jobs)
        except MalformedRow as error:
            intake.on_malformed(error)
            name = row.optional("job_name")
            if name is not None:
                jobs.setdefault(name, _Job(row.line)).incomplete = True
    unknown = fractions = 0
    requested = given = 0.0
    for name in list(jobs):
        with intake.one():
            record, gpus = _record(name, jobs.pop(name), submitted, users)
            intake.keep(record)
            unknown += name not in submitted
            fractions += gpus < record.gpus
            requested += gpus
            given += record.gpus
    notes = ["GPUs: the most that a job's tasks held at one time; duration: their GPU-seconds over that"]
    if job_table is None:
        notes.append("the task table knows no submission: a job arrives when its first task starts, having waited")
    elif unknown:
        notes.append(f"{unknown} jobs are missing from the job table: they arrive when their first task starts")
    if fractions:
        notes.append(
            f"{fractions} jobs ask for a fraction of a GPU, and count as the next whole number:"
            f" {requested:.1f} GPUs asked for became {given:.0f}"
        )
    return intake.recording(*notes)


def _submissions(path: Path, intake: Intake) -> tuple[dict[str, float], dict[str, str]]:
    """When each job was submitted, and by whom, by its name."""
    found: dict[str, float] = {}
    users: dict[str, str] = {}
    for row in read_rows(
        path, ("job_name", "start_time"), intake.on_malformed, names_without_header=JOB_COLUMNS, whole_lines=True
    ):
        with intake.one():
            name = row.text("job_name")
            seconds = moment(row.optional("start_time"), "start_time", row)
            if seconds is not None:
                found[name] = seconds
            users[name] = row.optional("user") or ""
    if not found:
        raise BadInput(f"{path}: no job has a start_time; give the trace's pai_job_table.csv")
    return found, users


def _add(row: CsvRow, jobs: dict[str, _Job]) -> None:
    name = row.text("job_name")
    instances = row.gpus("inst_num")
    percent = row.number_from_zero("plan_gpu") if row.optional("plan_gpu") else 0.0
    gpus = instances * percent / 100
    if gpus > MOST_GPUS:
        raise row.bad("plan_gpu", f"is {row.text('plan_gpu')!r} for {instances} instances", "use a percentage of a GPU")
    start = moment(row.optional("start_time"), "start_time", row)
    end = moment(row.optional("end_time"), "end_time", row)
    status = row.text("status").lower()
    if start is not None and end is not None:
        span(start, end, ("start_time", "end_time"), row)
    job = jobs.setdefault(name, _Job(row.line))
    if gpus == 0:
        return
    if status in ACTIVE:
        job.left_out = UNFINISHED
    elif start is None:
        job.left_out = job.left_out or NEVER_STARTED
    elif end is None:
        job.left_out = UNFINISHED
    else:
        job.pieces.append(AllocatedGpus(start, end, gpus))


def _record(name: str, job: _Job, submitted: dict[str, float], users: dict[str, str]) -> tuple[RecordedJob, float]:
    """The job, and the GPUs asked for before they were rounded up."""
    if job.incomplete:
        raise LeftOut(INCOMPLETE)
    if job.left_out is not None:
        raise LeftOut(job.left_out)
    if not job.pieces:
        raise LeftOut(NO_GPU)
    whole = as_one_request(job.pieces)
    submit = submitted.get(name, min(piece.start_seconds for piece in job.pieces))
    gpus = max(1, math.ceil(whole.gpus - _ROUNDING))
    known = name in submitted  # else the wait is not: the job counts as submitted when its first task starts
    record = RecordedJob(
        job.line,
        name,
        submit,
        whole.seconds,
        gpus,
        start_seconds=min(piece.start_seconds for piece in job.pieces) if known else None,
        end_seconds=max(piece.end_seconds for piece in job.pieces) if known else None,
        user=users.get(name, ""),
    )
    return record, whole.gpus
