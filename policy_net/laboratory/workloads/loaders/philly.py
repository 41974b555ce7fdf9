"""Microsoft's Philly trace: `cluster_job_log`, a JSON list of jobs with all their attempts.

Source: the trace's own description; Jeon et al., ATC 2019 (large-scale multi-tenant GPU clusters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.loaders.record import (
    NEVER_STARTED,
    NO_GPU,
    UNFINISHED,
    AllocatedGpus,
    Intake,
    LeftOut,
    NodeShare,
    RecordedJob,
    Recording,
    Selection,
    as_one_request,
)
from policy_net.laboratory.workloads.loaders.values import ZONE_NOTE, Item, item, read_json, span

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
            job = replace(job, name=job.text("jobid"))
            if not selection.includes(job.text_or_none("vc") or ""):
                continue
            record, gaps = _record(job)
            intake.keep(record)
            untimed += gaps
            ends[job.text_or_none("status") or "unstated"] += 1
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
    submit = job.stated_moment("submitted_time")
    attempts = job.parts("attempts")
    if not attempts:
        raise LeftOut(NEVER_STARTED)
    pieces, shares, last_end = _pieces(attempts)
    if last_end is None:
        raise LeftOut(UNFINISHED)
    if not pieces:
        raise LeftOut("no attempt has both a start and an end")
    whole = as_one_request(pieces)
    if not whole.gpus:
        raise LeftOut(NO_GPU)
    record = RecordedJob(
        job.number,
        job.name,
        submit,
        whole.seconds,
        round(whole.gpus),
        start_seconds=min(piece.start_seconds for piece in pieces),
        end_seconds=max(piece.end_seconds for piece in pieces),
        user=job.word("user"),
        partition=job.text_or_none("vc") or "",
        shares=tuple(shares),
    )
    return record, len(attempts) - len(pieces)


def _pieces(attempts: Sequence[Item]) -> tuple[list[AllocatedGpus], list[NodeShare], float | None]:
    """The attempts that have both times, what they held of which server, and the end of the last one."""
    pieces: list[AllocatedGpus] = []
    shares: list[NodeShare] = []
    end: float | None = None
    for attempt in attempts:
        start, end = attempt.moment("start_time"), attempt.moment("end_time")
        by_server = [(server.word("ip"), len(server.a_list("gpus"))) for server in attempt.parts("detail")]
        if start is not None and end is not None:
            span(start, end, ("start_time", "end_time"), attempt)
            pieces.append(AllocatedGpus(start, end, sum(gpus for _, gpus in by_server)))
            shares += [NodeShare(ip, gpus, start, end) for ip, gpus in by_server if ip]
    return pieces, shares, end
