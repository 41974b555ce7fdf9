"""Sources of workloads: what a user writes after `--workload`.

- `dl2:jobs=60,arrivals=google,sizes=varied,seed=9973`, with `max-arrivals=` and `mix=MODEL+MODEL*WEIGHT` if wanted
- `reference:TRACE@FILE`, one trace of a file of traces
- `philly:FILE`, `sacct:FILE` and the like, a recording in another scheduler's format (`FORMATS`)
- `decisions:PATH`, the jobs of an agent's decision log, or of its state directory
- anything else is the path of a csv with at least `job_id,submit_time_s,duration_s,num_gpus`, or of what Slurm's
  `sacct` prints, which is known by its header, as most people begin with it and leave the word out
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foundation.files import is_file, is_folder, near_file
from foundation.text import nearest, plain_line
from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import (
    ALLREDUCE_MODEL_NAMES,
    CATALOGUE,
    MODEL_NAMES,
    SLOT_SECONDS,
    UNSTATED_REQUEST,
    find_model,
)
from policy_net.laboratory.csv_rows import CsvRow, open_bytes, read_rows, shown
from policy_net.laboratory.workloads.generator import ARRIVAL_PATTERNS, SIZES, GeneratorSettings, generate
from policy_net.laboratory.workloads.loaders.helios import read_helios
from policy_net.laboratory.workloads.loaders.k8s import read_k8s
from policy_net.laboratory.workloads.loaders.openb import read_openb
from policy_net.laboratory.workloads.loaders.pai import read_pai
from policy_net.laboratory.workloads.loaders.philly import read_philly
from policy_net.laboratory.workloads.loaders.record import Intake, RecordedJob, Recording, even_shares
from policy_net.laboratory.workloads.loaders.sacct import is_sacct_header, read_sacct
from policy_net.laboratory.workloads.loaders.values import is_json
from policy_net.laboratory.workloads.recorded import trace_of, workload_of
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob, WorkloadOptions, job_of, take_window

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
    return set(re.split(r"[,\s\"]+", header)) >= set(COLUMNS), is_sacct_header(header)


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


GENERATOR_PREFIX = "dl2:"
REFERENCE_PREFIX = "reference:"
DECISIONS_PREFIX = "decisions:"
LARGEST_NUMBER = 1_000_000
"""Most jobs, arrivals a slot, and weight: beyond it a generator's option is a slip of the pen."""
_MIX_NAMES = ", ".join((*MODEL_NAMES, f"{MODEL_NAMES[0]}-async and so on", *ALLREDUCE_MODEL_NAMES))
_CALLED = {"slurm": "sacct", "kubernetes": "k8s", "kubectl": "k8s", "alibaba": "pai"}
"""What people call a source by, who do not know its word."""
GENERATOR_OPTIONS = ("jobs", "arrivals", "max-arrivals", "sizes", "seed", "mix")

TRACE_COLUMNS = ("trace", "job_id", "arrival_slot", "model", "epochs")
"""Of a file of traces whose results are known elsewhere, to check schedulers against; slots are of 1200 s."""


def read_reference(path: Path, trace: str) -> Workload:
    """Read one trace of a file; jobs of the same slot keep the file's order, which is their arrival order.

    Raises:
        BadInput: the file, a row of the trace, or the trace's name cannot be used.
    """
    jobs: list[WorkloadJob] = []
    others: dict[str, None] = {}
    seen: set[str] = set()
    for row in read_rows(path, TRACE_COLUMNS):
        name = row.text("trace")
        if name != trace:
            others[name] = None
            continue
        job_id = row.text("job_id")
        if job_id in seen:
            raise row.bad("job_id", f"{job_id!r} occurs twice in trace {trace!r}", "give every job its own id")
        seen.add(job_id)
        profile = find_model(row.text("model"), JobKind.PS)
        if profile is None:
            raise row.bad("model", f"is {row.text('model')!r}", f"use one of {', '.join(MODEL_NAMES)}")
        epochs = row.number("epochs")
        if epochs <= 0:
            raise row.bad("epochs", f"is {row.text('epochs')!r}", "use a number above 0")
        submit_seconds = row.whole("arrival_slot", at_least=0) * SLOT_SECONDS
        jobs.append(job_of(profile, job_id, submit_seconds, epochs, UNSTATED_REQUEST))
    if not jobs:
        raise BadInput(f"{path}: no trace {trace!r}; it has {', '.join(others)}")
    jobs.sort(key=lambda job: job.submit_time_seconds)
    notes = (
        f"arrival slots are of {SLOT_SECONDS:.0f} s",
        f"every job asks for {UNSTATED_REQUEST.workers} workers and "
        f"{UNSTATED_REQUEST.ps} PSs (matters to fixed-size schedulers only)",
    )
    return Workload(name=trace, jobs=tuple(jobs), notes=notes, slotted=True)


def is_recording(source: str) -> bool:
    """Whether `source` names jobs that a scheduler recorded, of which nobody knows how they trained."""
    return not source.startswith((GENERATOR_PREFIX, REFERENCE_PREFIX, DECISIONS_PREFIX))


def read_source(source: str, *, strict: bool = False) -> Recording | None:
    """The recorded jobs that `source` names; None if it names something else, or nothing.

    Raises:
        BadInput: the file cannot be used.
    """
    if not is_recording(source):
        return None
    if source.partition(":")[0] in FORMATS and ":" in source:
        return read_recording(source, strict)
    path = Path(source)
    return read_csv(path, strict) if is_file(path) else None


def load_workload(source: str, options: WorkloadOptions | None = None, recording: Recording | None = None) -> Workload:
    """Read or generate the workload that `source` names.

    Args:
        recording: what `read_source` gave for it, so that a file is read once for many workloads.

    Raises:
        BadInput: the source, a file or an option cannot be used.
    """
    options = options or WorkloadOptions()
    recording = recording or read_source(source, strict=options.strict)
    if source.startswith(GENERATOR_PREFIX):
        workload = _window_of(generate(parse_generator(source, options.seed)), options)
    elif source.startswith(REFERENCE_PREFIX):
        trace, at, file = source.removeprefix(REFERENCE_PREFIX).partition("@")
        if not (trace and at and file):
            raise BadInput(f"workload {source!r}: write {REFERENCE_PREFIX}TRACE@FILE")
        workload = _window_of(read_reference(Path(file), trace), options)
    elif source.startswith(DECISIONS_PREFIX):
        # Brings what agents log, and how speeds are fitted to it; few workloads come from there.
        from policy_net.laboratory.workloads.decided import read_recorded  # noqa: PLC0415

        workload = _window_of(read_recorded(Path(source.removeprefix(DECISIONS_PREFIX))).workload, options)
    elif recording is not None:
        in_other_format = source.partition(":")[0] in FORMATS and ":" in source
        workload = workload_of(recording, options) if in_other_format else trace_of(recording, options)
    else:
        formats = ", ".join(f"{name}:FILE" for name in FORMATS)
        missing = "is a folder;" if is_folder(Path(source)) else f"no such file{_meant(source) or ';'}"
        raise BadInput(
            f"workload {shown(source)}: {missing} give a csv file, {formats}, {REFERENCE_PREFIX}TRACE@FILE,"
            f" or {GENERATOR_PREFIX}jobs=60,arrivals=google,…"
        )
    return _scale_arrivals(workload, options.arrival_scale)


def _meant(source: str) -> str:
    """The word before the colon, or the file, that was probably meant, if there is one."""
    word, colon, _ = source.partition(":")
    near = _CALLED.get(word.lower()) or nearest(
        word, [*FORMATS, *(prefix[:-1] for prefix in (GENERATOR_PREFIX, REFERENCE_PREFIX, DECISIONS_PREFIX))]
    )
    if colon and near:
        return f"; did you mean {near}: before it?"
    file = near_file(Path(source))
    return "" if file is None else f"; did you mean {shown_path(file)}?"


def parse_generator(source: str, default_seed: int = 0) -> GeneratorSettings:
    """What a `dl2:` source says; what it leaves out has its default.

    Raises:
        BadInput: an option or a value is not one of those allowed.
    """
    values: dict[str, Any] = {"seed": default_seed}
    given: set[str] = set()
    for part in filter(None, source.removeprefix(GENERATOR_PREFIX).split(",")):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        where = f"workload {source!r}: {name}"
        if name not in GENERATOR_OPTIONS or not equals:
            raise BadInput(f"{where}: no such option; write NAME=VALUE with {', '.join(GENERATOR_OPTIONS)}")
        if name in given:
            raise BadInput(f"{where} is given twice")
        given.add(name)
        if name in ("jobs", "max-arrivals", "seed"):
            values[name.replace("-", "_")] = _whole(
                text, where, *((0, 2**63 - 1) if name == "seed" else (1, LARGEST_NUMBER))
            )
        elif name == "mix":
            values[name] = _parse_mix(text, where)
        else:
            allowed = tuple(ARRIVAL_PATTERNS) if name == "arrivals" else SIZES
            if text not in allowed:
                raise BadInput(f"{where} is {text!r}; use one of {', '.join(allowed)}")
            values[name] = text
    return GeneratorSettings(**values)


def _whole(text: str, where: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise BadInput(f"{where} is {text!r}; use a whole number from {least} to {most}")
    return int(text)


def _parse_mix(text: str, where: str) -> dict[str, float]:
    """Weights by model from MODEL+MODEL*WEIGHT, in the catalogue's order."""
    weights: dict[str, float] = {}
    for part in text.split("+"):
        name, star, weight_text = (piece.strip() for piece in part.partition("*"))
        profile = find_model(name)
        if profile is None:
            raise BadInput(f"{where}: no model {name!r}; write MODEL+MODEL*WEIGHT with {_MIX_NAMES}")
        try:
            weight = float(weight_text) if star else 1.0
        except ValueError:
            weight = math.nan
        if not 0 < weight <= LARGEST_NUMBER:  # false for NaN too
            raise BadInput(
                f"{where}: the weight of {name} is {weight_text!r}; use a number above 0, at most {LARGEST_NUMBER}"
            )
        if profile.name in weights:
            raise BadInput(f"{where}: model {profile.name} is given twice")
        weights[profile.name] = weight
    return {name: weights[name] for name in CATALOGUE if name in weights}


def _window_of(workload: Workload, options: WorkloadOptions) -> Workload:
    if options.limit_jobs is None:
        return workload
    jobs = take_window(workload.jobs, options.limit_jobs, options.window, f"workload {workload.name!r}")
    start = jobs[0].submit_time_seconds
    moved = tuple(replace(job, submit_time_seconds=job.submit_time_seconds - start) for job in jobs)
    first = options.window * options.limit_jobs
    note = f"jobs {first + 1}–{first + len(jobs)} of {len(workload.jobs)}, time from the first"
    return replace(workload, jobs=moved, notes=(*workload.notes, note))


def _scale_arrivals(workload: Workload, scale: float) -> Workload:
    """Multiply the time between arrivals; the suggested cluster stays as it is, so that the load changes."""
    if scale == 1.0:
        return workload
    jobs = tuple(replace(job, submit_time_seconds=job.submit_time_seconds * scale) for job in workload.jobs)
    # What was waited under another load is no measure of this one.
    records = {
        job_id: replace(record, wait_seconds=None, jct_seconds=None) for job_id, record in workload.records.items()
    }
    return replace(workload, jobs=jobs, records=records, notes=(*workload.notes, f"times between arrivals × {scale:g}"))
