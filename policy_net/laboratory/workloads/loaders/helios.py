"""SenseTime's Helios traces: `cluster_log.csv` of one of their clusters.

Source: the traces' own description; Hu et al., SC 2021 (workloads in large-scale GPU datacenters).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from policy_net.laboratory.csv_rows import CsvRow, plain_number, read_rows
from policy_net.laboratory.workloads.loaders.record import (
    NEVER_STARTED,
    UNFINISHED,
    Intake,
    LeftOut,
    RecordedJob,
    Recording,
    Selection,
)
from policy_net.laboratory.workloads.loaders.values import ZONE_NOTE, moment_if_any, span, stated_moment, unstated

ENDS = "end_time - start_time"
COLUMNS = ("job_id", "gpu_num", "submit_time", "duration")
ACTIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


def read_helios(path: Path, strict: bool = False, vc: str | None = None) -> Recording:
    """Read a `cluster_log.csv`, or one virtual cluster of it.

    Raises:
        BadInput: the file cannot be used, or has no such virtual cluster; in strict reading, a row is malformed.
    """
    intake = Intake(path, strict, "job_id")
    selection = Selection("vc", vc)
    ends: Counter[str] = Counter()
    for row in read_rows(path, COLUMNS, intake.on_malformed, whole_lines=True):
        with intake.one():
            if not selection.includes(row.optional("vc") or ""):
                continue
            intake.keep(_record(row, intake), row.optional("cluster") or "")
            ends[row.optional("state") or "unstated"] += 1
    return intake.recording(
        *selection.notes(path),
        f"state: {', '.join(f'{count} {state}' for state, count in sorted(ends.items()))};"
        " failed and cancelled jobs count with the time that they ran",
        ZONE_NOTE,
        part=vc,
    )


def _record(row: CsvRow, intake: Intake) -> RecordedJob:
    job_id = row.text("job_id")
    gpus = row.gpus("gpu_num")
    submit = stated_moment(row.optional("submit_time"), "submit_time", row)
    if (row.optional("state") or "").upper() in ACTIVE:
        raise LeftOut(UNFINISHED)
    if "start_time" in row.cells and unstated(row.cells["start_time"]):
        raise LeftOut(NEVER_STARTED)
    seconds = row.seconds_from_zero("duration")
    start, end = moment_if_any(row.optional("start_time")), moment_if_any(row.optional("end_time"))
    if start is not None and end is not None and end >= start:
        # Acme's traces have the time in the queue in their durations.
        ran = span(start, end, ("start_time", "end_time"), row)
        intake.compare(("duration", seconds), (ENDS, ran), ENDS)
        seconds = ran
    queued = row.optional("queue")
    if start is not None and queued is not None and start >= submit:
        waited = ("start_time - submit_time", start - submit)
        intake.compare(("queue", plain_number(queued)), waited, waited[0])
    return RecordedJob(
        row.line,
        job_id,
        submit,
        seconds,
        gpus,
        start_seconds=start,
        end_seconds=None if start is None else start + seconds,
        user=row.optional("user") or "",
        partition=row.optional("vc") or "",
    )
