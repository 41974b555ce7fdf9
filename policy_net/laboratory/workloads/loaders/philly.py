"""Microsoft's Philly trace: `cluster_job_log`, a JSON list of jobs with all their attempts.

Source: the trace's own description; Jeon et al., ATC 2019 (large-scale multi-tenant GPU clusters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.loaders.intake import NEVER_STARTED, NO_GPU, UNFINISHED, Intake, LeftOut, Selection
from policy_net.laboratory.workloads.loaders.json_items import Item, item, read_json
from policy_net.laboratory.workloads.loaders.record import (
    HeldGpus,
    NodeShare,
    RecordedJob,
    Recording,
    as_one_request,
)
from policy_net.laboratory.workloads.loaders.times import ZONE_NOTE, moment, span, stated_moment

EXPECTED = "give the trace's cluster_job_log"
UNIT = "record"


def read_philly(path: Path, strict: bool = False, vc: str | None = None) -> Recording:
    """Read a `cluster_job_log`, or one virtual cluster of it.

    Raises:
        BadInput: the file cannot be used, or has no such virtual cluster; in strict reading, a record is malformed.
    """
    log = read_json(path, EXPECTED)
    if not isinstance(log, list):
        raise BadInput(f"{path}: holds no list of jobs; {EXPECTED}")
    intake = Intake(path, strict, "jobid", UNIT)
    selection = Selection("vc", vc)
    ends: Counter[str] = Counter()
    untimed = 0
    for number, value in enumerate(log, start=1):
        with intake.one():
            job = item(path, number, UNIT, value)
            job = Item(path, number, UNIT, value, name=job.a_text(job.fields.get("jobid"), "jobid"))
            if not selection.wants(job.text_or_none(job.fields.get("vc"), "vc") or ""):
                continue
            record, gaps = _record(job)
            intake.keep(record)
            untimed += gaps
            ends[job.text_or_none(job.fields.get("status"), "status") or "unstated"] += 1
    notes = [
        *selection.notes(path),
        "GPUs: the most that a job's attempts held at one time; duration: GPU-seconds of its attempts over that",
        f"status: {', '.join(f'{count} {status}' for status, count in sorted(ends.items()))};"
        " failed and killed jobs count with the time that they ran",
        ZONE_NOTE,
    ]
    if untimed:
        notes.append(f"{untimed} attempts without a start or an end count no time")
    return intake.recording(*notes, part=vc)


def _record(job: Item) -> tuple[RecordedJob, int]:
    """The job, and the number of its attempts that lack a time."""
    submit = stated_moment(job.text_or_none(job.fields.get("submitted_time"), "submitted_time"), "submitted_time", job)
    attempts = job.a_list(job.fields.get("attempts"), "attempts")
    if not attempts:
        raise LeftOut(NEVER_STARTED)
    pieces, shares, last_end = _pieces(job, attempts)
    if last_end is None:
        raise LeftOut(UNFINISHED)
    if not pieces:
        raise LeftOut("no attempt has both a start and an end")
    held = as_one_request(pieces)
    if not held.gpus:
        raise LeftOut(NO_GPU)
    record = RecordedJob(
        job.number,
        job.name,
        submit,
        held.seconds,
        round(held.gpus),
        start_seconds=min(piece.start_seconds for piece in pieces),
        end_seconds=max(piece.end_seconds for piece in pieces),
        user=job.text_if_any(job.fields.get("user")),
        partition=job.text_or_none(job.fields.get("vc"), "vc") or "",
        shares=tuple(shares),
    )
    return record, len(attempts) - len(pieces)


def _pieces(job: Item, attempts: Sequence[Any]) -> tuple[list[HeldGpus], list[NodeShare], float | None]:
    """The attempts that have both times, what they held of which server, and the end of the last one."""
    pieces: list[HeldGpus] = []
    shares: list[NodeShare] = []
    end: float | None = None
    for index, value in enumerate(attempts):
        field = f"attempts[{index}]"
        attempt = job.an_object(value, field)
        names = f"{field}.start_time", f"{field}.end_time"
        start = moment(job.text_or_none(attempt.get("start_time"), names[0]), names[0], job)
        end = moment(job.text_or_none(attempt.get("end_time"), names[1]), names[1], job)
        held: list[tuple[str, int]] = []
        for place, value_there in enumerate(job.a_list(attempt.get("detail"), f"{field}.detail")):
            name = f"{field}.detail[{place}]"
            server = job.an_object(value_there, name)
            there = len(job.a_list(server.get("gpus"), f"{name}.gpus"))
            held.append((job.text_if_any(server.get("ip")), there))
        if start is not None and end is not None:
            span(start, end, names, job)
            pieces.append(HeldGpus(start, end, sum(gpus for _, gpus in held)))
            shares += [NodeShare(ip, gpus, start, end) for ip, gpus in held if ip]
    return pieces, shares, end
