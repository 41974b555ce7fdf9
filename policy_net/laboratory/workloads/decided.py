"""Workload of a decision log: the jobs that an agent scheduled, with the work that they really did.

So another policy can be asked what it would have made of them, on machines like those. The log's own speeds are the
truth of such a replay (`--speeds decisions:PATH`). Jobs that had not ended when the log did count with what they said
that they would do; those that said nothing, or were taken away before their end, are left out, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from policy_net.domain import Job, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.speeds.decided_speeds import logged_decisions
from policy_net.laboratory.workloads.workload import JobSpec, Workload

_LEAST_EPOCHS = 1e-6
_UNCOUNTED_SHARE = 0.1
"""Of a job's work that its intervals may lack."""


@dataclass(slots=True)
class _Seen:
    """One job, as the log shows it last.

    Attributes:
        since_samples: trained since the last state that shows it.
        finished: whether it was seen to end by itself.
        told: whether the log says what became of it after that.
    """

    job: Job
    since_samples: float = 0.0
    finished: bool = False
    present: bool = True
    told: bool = False


def read_decided(path: Path) -> Workload:
    """The jobs of a decision log, or of an agent's state directory, with time from zero at the first.

    Raises:
        BadInput: it cannot be read, or shows no job whose work is known.
    """
    seen: dict[str, _Seen] = {}
    nodes: tuple[Resources, ...] = ()
    slot_seconds = 0.0
    for logged in logged_decisions(path):
        for entry in logged.observed:
            if entry.job_id in seen:
                seen[entry.job_id].since_samples += entry.samples
                seen[entry.job_id].finished |= entry.finished
                seen[entry.job_id].told = True
        for known in seen.values():
            known.present = False
        for job in logged.state.jobs:
            seen[job.job_id] = _Seen(job)
        nodes = tuple(node.capacity for node in logged.state.nodes)
        slot_seconds = logged.state.slot_seconds
    found = [(known, epochs) for known in seen.values() if (epochs := _epochs(known)) is not None]
    if not found:
        raise BadInput(f"{path}: shows no job whose work is known; wait until one has ended")
    start = min(known.job.submit_time_seconds for known, _ in found)
    jobs = sorted((_spec(known.job, epochs, start) for known, epochs in found), key=lambda job: job.submit_time_seconds)
    left_out = len(seen) - len(found)
    largest = max(nodes, key=lambda node: (node.gpu, node.cpu_milli))
    notes = [
        f"{len(jobs)} jobs of a decision log, with the work that they did, time from the first",
        f"decided on {len(nodes)} nodes of {largest.cpu_milli / 1000:g} CPU and {largest.gpu} GPU, every"
        f" {slot_seconds:g} s: say so with --cpus-per-node, --gpus-per-node and --slot-seconds",
    ]
    if left_out:
        notes.append(f"{left_out} jobs left out: they were taken away, or had not ended and said nothing of their work")
    return Workload(path.resolve().name, tuple(jobs), tuple(notes), suggested_nodes=len(nodes), slotted=False)


def _epochs(known: _Seen) -> float | None:
    """All the work of a job; None where nobody knows it."""
    job = known.job
    done = max(0.0, job.total_epochs - job.remaining_epochs) + known.since_samples / job.samples_per_epoch
    if known.finished:
        # What a job trains while it is being resized is in no interval: what it said stands where that explains it.
        said = job.work_known and abs(job.total_epochs - done) <= _UNCOUNTED_SHARE * job.total_epochs
        return job.total_epochs if said else max(done, _LEAST_EPOCHS)
    return job.total_epochs if (known.present or not known.told) and job.work_known else None


def _spec(job: Job, epochs: float, start: float) -> JobSpec:
    return JobSpec(
        job_id=job.job_id,
        job_type=job.job_type,
        submit_time_seconds=job.submit_time_seconds - start,
        total_epochs=epochs,
        samples_per_epoch=job.samples_per_epoch,
        worker_demand=job.worker_demand,
        ps_demand=job.ps_demand,
        requested=job.requested,
        max_workers=job.max_workers,
        max_ps=job.max_ps,
        declared_epochs=job.total_epochs if job.work_known else None,
        kind=job.kind,
        min_workers=job.min_workers,
        min_ps=job.min_ps,
        work_known=job.work_known,
    )
