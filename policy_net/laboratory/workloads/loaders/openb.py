"""Alibaba's openb trace of 2023: a list of pods, most of which share a GPU with others.

Source: the trace's own description; Weng et al., ATC 2023 (fragmentation gradient descent).
"""

from __future__ import annotations

from pathlib import Path

from policy_net.laboratory.csv_rows import CsvRow, read_rows
from policy_net.laboratory.workloads.loaders.record import (
    NEVER_STARTED,
    UNFINISHED,
    Intake,
    LeftOut,
    RecordedJob,
    Recording,
)
from policy_net.laboratory.workloads.loaders.values import moment, span, stated_moment

COLUMNS = ("name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
WHOLE_GPU_MILLI = 1000


def read_openb(path: Path, strict: bool = False) -> Recording:
    """Read an `openb_pod_list_*.csv`.

    Raises:
        BadInput: the file cannot be used; in strict reading, a row is malformed.
    """
    intake = Intake(path, strict, "name")
    pods: list[tuple[RecordedJob, bool, bool]] = []
    for row in read_rows(path, COLUMNS, intake.on_malformed, whole_lines=True):
        with intake.one():
            pods.append(_pod(row))
    # A pod that was deleted in the middle of its run shows Running too; only at the last moment was it still there.
    last = max((record.end_seconds for record, _, _ in pods if record.end_seconds is not None), default=0.0)
    shared = 0
    for record, was_running, shares_gpu in pods:
        with intake.one():
            if was_running and record.end_seconds == last:
                raise LeftOut(UNFINISHED)
            intake.keep(record)
            shared += shares_gpu
    notes = ["every pod is a job of its own: the trace does not say which pods belong together"]
    if shared:
        notes.append(f"{shared} pods ask for a part of one GPU, and count as one GPU")
    return intake.recording(*notes)


def _pod(row: CsvRow) -> tuple[RecordedJob, bool, bool]:
    """The pod, whether it was running when the list was made, and whether it asked for a part of a GPU."""
    name = row.text("name")
    gpus = row.gpus("num_gpu")
    milli = row.whole("gpu_milli", at_least=0) if row.optional("gpu_milli") else WHOLE_GPU_MILLI
    created = stated_moment(row.optional("creation_time"), "creation_time", row)
    start = moment(row.optional("scheduled_time"), "scheduled_time", row)
    end = moment(row.optional("deletion_time"), "deletion_time", row)
    if start is None:
        raise LeftOut(NEVER_STARTED)
    if end is None:
        raise LeftOut(UNFINISHED)
    seconds = span(start, end, ("scheduled_time", "deletion_time"), row)
    record = RecordedJob(row.line, name, created, seconds, gpus, start_seconds=start, end_seconds=end)
    was_running = (row.optional("pod_phase") or "").lower() == "running"
    return record, was_running, gpus == 1 and milli < WHOLE_GPU_MILLI
