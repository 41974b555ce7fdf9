"""Explanation of one TrainingJob, as `explanation.py` has it of a target; from what stands in the cluster.

Its coordinator, which only its agent may ask, is not asked: how far it is, and where it stands, its status says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_agent.backends.kubernetes.explanation import (
    Answer,
    Believed,
    answer_of,
    believed_speeds,
    conditions_of,
    decision_of,
    notes_on,
    others_of,
)
from cluster_agent.backends.kubernetes.training.measured import current_of, noted
from cluster_agent.backends.kubernetes.views import ClusterView
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, TrainingJob, UpdateMode
from cluster_agent.recording.reasons import room_for, step_facts
from policy_net.domain import SUSPENDED, Allocation, JobKind


def explain_training_job(
    view: ClusterView, job_id: str, state_dir: Path | None, policy: str, events: list[dict[str, Any]]
) -> dict[str, Any]:
    """Why a TrainingJob has what it has; plain JSON values, named as those of a target.

    Args:
        job_id: of one that is there.
        state_dir: of the agent; None where it is not at hand.
        policy: asked where no decision is at hand.
    """
    job = view.training_jobs[job_id]
    notes = notes_on(view)
    asked = any(each.job_id == job_id for each in view.observed.state.jobs)
    answer = answer_of(view, job_id, state_dir, policy, notes, is_asked=asked)
    beliefs = None if answer is None or state_dir is None else answer.beliefs
    kind = JobKind.ALLREDUCE if job.is_all_reduce else JobKind.PS
    believed = believed_speeds(job.model_type, state_dir, beliefs, kind)
    now = SUSPENDED if job.outcome else current_of(job, None)
    return {
        "name": job_id,
        "job": {"apiVersion": TRAINING_JOBS.api_version, "kind": TRAINING_JOBS.kind, "name": job.name},
        "modelType": job.model_type,
        "updateMode": job.mode.value,
        "state": str(job.status.get("phase") or "new").lower(),
        "workers": now.workers,
        "ps": now.ps,
        "min": job.least.workers,
        "max": job.most.workers,
        "minPs": job.least.ps,
        "maxPs": job.most.ps,
        "progress": _progress(job),
        "conditions": conditions_of(job.status),
        "recommendation": job.status.get("recommendation"),
        "allocation": job.status.get("allocation"),
        "decision": None if answer is None else decision_of(answer, job_id),
        "gains": _gains(job, now, believed, answer),
        "speedsFrom": believed.source,
        "others": [] if answer is None else others_of(answer, job_id),
        "waitsFor": _waits_for(job, now, answer),
        "events": events,
        "notes": notes,
    }


def _progress(job: TrainingJob) -> dict[str, Any] | None:
    counted = noted(job)
    if not counted.samples:
        return None
    epochs = counted.total_epochs or job.epochs
    total = counted.samples_per_epoch * epochs if epochs and counted.samples_per_epoch else None
    return {"samples": counted.samples, "total": total, "share": counted.samples / total if total else None}


def _gains(job: TrainingJob, now: Allocation, believed: Believed, answer: Answer | None) -> list[dict[str, Any]]:
    """A row for each number of workers beside the parameter servers that it has, and for each size that was weighed."""
    weighed = {} if answer is None else {step.target: step for step in answer.steps if step.job_id == job.job_id}
    servers = (now if now != SUSPENDED else job.least).ps
    sizes = {Allocation(workers, servers) for workers in range(job.least.workers, job.most.workers + 1)} | set(weighed)
    base = _speed(believed, now)
    rows = []
    for size in sorted(sizes, key=lambda each: (each.ps, each.workers)):
        speed = _speed(believed, size)
        rows.append(
            {
                "workers": size.workers,
                "ps": size.ps,
                "samplesPerSecond": speed if believed.has_scale else None,
                "timesAsFastAsNow": speed / base if base > 0 else None,
                "step": step_facts(weighed[size]) if size in weighed else None,
            }
        )
    return rows


def _speed(believed: Believed, size: Allocation) -> float:
    if size == SUSPENDED:
        return 0.0
    return believed.speeds.samples_per_second(believed.job_type, size.ps, size.workers)


def _waits_for(job: TrainingJob, now: Allocation, answer: Answer | None) -> str:
    accepted = job.condition("Accepted")
    without_room = [
        (bool(job.problem), f"nothing: {job.problem}"),
        (bool(job.outcome), f"nothing: it is {job.outcome}"),
        (job.deleting, "its end: it is being deleted"),
        (job.suspend, "its author: spec.suspend is true"),
        (accepted.get("status") == "False", f"its author: {accepted.get('message', '')}"),
        (answer is None, str(job.status.get("message") or "")),
    ]
    line = next((line for holds, line in without_room if holds), None)
    if line is not None or answer is None:
        return line or ""
    wanted = answer.given.get(job.job_id, SUSPENDED)
    if job.mode is UpdateMode.OFF and wanted != SUSPENDED:
        wanted = job.least
    if wanted == SUSPENDED:
        found = next(each for each in answer.state.jobs if each.job_id == job.job_id)
        return room_for(found, answer.given, answer.state)
    if wanted == now:
        return str(job.status.get("message") or "")
    return f"its size to be set: {_size(wanted)} rather than {_size(now)}"


def _size(size: Allocation) -> str:
    return f"{size.workers} and {size.ps} PS" if size.ps else f"{size.workers}"
