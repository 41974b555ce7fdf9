"""Traces whose results are known elsewhere, for checking schedulers against them.

A file holds many traces: columns trace, job_id, arrival_slot (of 1200 s), model, epochs.
"""

from __future__ import annotations

from pathlib import Path

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import MODEL_NAMES, SLOT_SECONDS, UNSTATED_REQUEST, find_model
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob

TRACE_COLUMNS = ("trace", "job_id", "arrival_slot", "model", "epochs")


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
        jobs.append(
            WorkloadJob(
                job_id=job_id,
                job_type=profile.name,
                submit_time_seconds=row.whole("arrival_slot", at_least=0) * SLOT_SECONDS,
                total_epochs=epochs,
                samples_per_epoch=profile.samples_per_epoch,
                worker_demand=profile.worker_demand,
                ps_demand=profile.ps_demand,
                requested=UNSTATED_REQUEST,
            )
        )
    if not jobs:
        raise BadInput(f"{path}: no trace {trace!r}; it has {', '.join(others)}")
    jobs.sort(key=lambda job: job.submit_time_seconds)
    notes = (
        f"arrival slots are of {SLOT_SECONDS:.0f} s",
        f"every job asks for {UNSTATED_REQUEST.workers} workers and "
        f"{UNSTATED_REQUEST.ps} PSs (matters to fixed-size schedulers only)",
    )
    return Workload(name=trace, jobs=tuple(jobs), notes=notes, slotted=True)
