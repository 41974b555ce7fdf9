"""Our own csv: a row a job, times in seconds on any clock."""

from __future__ import annotations

from pathlib import Path

from policy_net.laboratory.csv_rows import Row, read_rows
from policy_net.laboratory.workloads.loaders.intake import Intake
from policy_net.laboratory.workloads.loaders.record import RecordedJob, Recording

COLUMNS = ("job_id", "submit_time_s", "duration_s", "num_gpus")


def read_csv(path: Path, strict: bool = False) -> Recording:
    """Read a csv with at least `COLUMNS`, and `model` where it is known.

    Raises:
        BadInput: the file cannot be used; in strict reading, a row is malformed.
    """
    intake = Intake(path, strict, "job_id")
    for row in read_rows(path, COLUMNS, intake.malformed):
        with intake.one():
            intake.keep(_record(row))
    return intake.recording()


def _record(row: Row) -> RecordedJob:
    return RecordedJob(
        number=row.line,
        job_id=row.text("job_id"),
        submit_seconds=row.seconds("submit_time_s"),
        duration_seconds=row.seconds_from_zero("duration_s"),
        gpus=row.gpus("num_gpus"),
        model=row.optional("model"),
    )
