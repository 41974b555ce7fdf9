"""Formats of recorded workloads: our own csv, and those named before their file, as in `sacct:jobs.txt`.

Slurm's is known by its header too, as most people begin with it and leave the word out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from foundation.files import is_file, is_folder, near_file
from foundation.text import plain_line
from policy_net.errors import BadInput
from policy_net.laboratory.csv_rows import CsvRow, open_bytes, read_rows, shown
from policy_net.laboratory.workloads.loaders.helios import read_helios
from policy_net.laboratory.workloads.loaders.k8s import read_k8s
from policy_net.laboratory.workloads.loaders.openb import read_openb
from policy_net.laboratory.workloads.loaders.pai import read_pai
from policy_net.laboratory.workloads.loaders.philly import read_philly
from policy_net.laboratory.workloads.loaders.record import Intake, RecordedJob, Recording, even_shares
from policy_net.laboratory.workloads.loaders.sacct import looks_like_sacct, read_sacct
from policy_net.laboratory.workloads.loaders.values import is_json

COLUMNS = ("job_id", "submit_time_s", "duration_s", "num_gpus")
"""Of our own csv: a row a job, times in seconds on any clock. Read too, where they are there: `model`, `start_time_s`,
`user`, `account`, `partition`, `node_names`, with blanks between the names, and `cluster`, by which alone ids need to
differ. Where there is an `end_time_s`, it is compared with the duration."""
_LONGEST_HEADER_BYTES = 65_536
_LONGEST_PATH = 200


@dataclass(frozen=True, slots=True)
class Format:
    """One format; `part` is what may stand behind an @, which `read` then takes beside the file and strictness."""

    read: Callable[..., Recording]
    part: str | None = None


FORMATS: Mapping[str, Format] = {
    "philly": Format(read_philly, part="VC"),
    "helios": Format(read_helios, part="VC"),
    "pai": Format(read_pai, part="JOB_TABLE"),
    "openb": Format(read_openb),
    "sacct": Format(read_sacct),
    "k8s": Format(read_k8s),
}


def read_recording(source: str, strict: bool) -> Recording:
    """Read what a source such as `philly:FILE@VC` names; the text before the colon must be a known format.

    Raises:
        BadInput: the file is missing or cannot be used.
    """
    name, _, text = source.partition(":")
    chosen = FORMATS[name]
    path, part = Path(text), None
    if chosen.part is not None and not is_file(path) and "@" in text:
        before, _, part = text.rpartition("@")
        path = Path(before)
    if not text or part == "" or not is_file(path):
        usage = f"{name}:FILE" + (f" or {name}:FILE@{chosen.part}" if chosen.part else "")
        missing = "is a folder" if path.name and is_folder(path) else "no such file"
        near = near_file(path) if path.name and missing == "no such file" else None
        of_part = "" if part is None else f"@{part}"
        remedy = f"write {usage}" if near is None else f"did you mean {name}:{shown_path(near)}{of_part}?"
        raise BadInput(f"workload {shown(source)}: {missing}; {remedy}")
    if _columns_in(path) == (True, False):
        raise BadInput(
            f"{path}: is a csv with {', '.join(COLUMNS)}, which no {name} writes; leave out {name}: before it"
        )
    return chosen.read(path, strict) if part is None else chosen.read(path, strict, part)


def read_csv(path: Path, strict: bool = False) -> Recording:
    """Read a csv with at least `COLUMNS`.

    Raises:
        BadInput: the file cannot be used; in strict reading, a row is malformed.
    """
    if _columns_in(path) == (False, True):
        recording = read_sacct(path, strict)
        return replace(recording, notes=("read as sacct:FILE, by its header", *recording.notes))
    if is_json(path):
        raise BadInput(
            f"{path}: is JSON, not csv: write k8s:FILE for kubectl's pods, sacct:FILE for sacct --json, philly:FILE for"
            " Philly's job log"
        )
    intake = Intake(path, strict, "job_id")
    for row in read_rows(path, COLUMNS, intake.on_malformed, whole_lines=True, short_rows=True):
        with intake.one():
            record = _record(row)
            end = None if row.optional("end_time_s") is None else row.seconds("end_time_s")
            if end is not None and record.start_seconds is not None:
                lasted = ("end_time_s - start_time_s", end - record.start_seconds)
                intake.compare(("duration_s", record.duration_seconds), lasted, "duration_s")
            intake.keep(record, row.optional("cluster") or "")
    return intake.recording()


def shown_path(path: Path) -> str:
    """The name of a file, in a line of a message."""
    return plain_line(str(path), _LONGEST_PATH)


def _columns_in(path: Path) -> tuple[bool, bool]:
    """Whether the first line has our own columns, and whether those of `sacct`, however it divides them."""
    header = _header_of(path)
    return set(re.split(r"[,\s\"]+", header)) >= set(COLUMNS), looks_like_sacct(header)


def _header_of(path: Path) -> str:
    """The first line; empty of a pipe, which is not looked at: it is read once."""
    if not path.is_file():
        return ""
    with open_bytes(path) as file:
        return file.readline(_LONGEST_HEADER_BYTES).decode("utf-8-sig", errors="replace")


def _record(row: CsvRow) -> RecordedJob:
    job_id, submit = row.text("job_id"), row.seconds("submit_time_s")
    seconds, gpus = row.seconds_from_zero("duration_s"), row.gpus("num_gpus")
    start = None if row.optional("start_time_s") is None else row.seconds("start_time_s")
    end = None if start is None else start + seconds
    nodes = (row.optional("node_names") or "").split()
    return RecordedJob(
        number=row.line,
        job_id=job_id,
        submit_seconds=submit,
        duration_seconds=seconds,
        gpus=gpus,
        model=row.optional("model"),
        start_seconds=start,
        end_seconds=end,
        user=row.optional("user") or "",
        account=row.optional("account") or "",
        partition=row.optional("partition") or "",
        shares=even_shares(nodes, gpus, submit if start is None else start, submit + seconds if end is None else end),
    )
