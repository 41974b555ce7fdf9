"""Manifest of a TrainingJob, as a job that a policy could be asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster_agent.backends.kubernetes.observation import observed
from cluster_agent.backends.kubernetes.views import ClusterView, StandingJobs
from cluster_agent.errors import BadJobFile
from cluster_agent.jobs.forecast import NEW
from cluster_agent.jobs.manifests import TARGET_KINDS, Asked, namespace_of
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, UpdateMode, training_job

Json = dict[str, Any]


def asked_training_job(view: ClusterView, manifest: Json, file: Path) -> Asked:
    """The job as its agent would observe it, once it were there.

    Args:
        file: for messages.

    Raises:
        BadJobFile: it could not be used, or would not begin.
    """
    metadata = manifest["metadata"]
    name = str(metadata.get("name") or metadata.get("generateName") or NEW)
    stated = {**manifest, "metadata": {"name": name, "namespace": namespace_of(manifest), "uid": NEW}}
    # As if it were made now: what an earlier one of its name has come to says nothing of it.
    job = view.rights.judged(training_job({name: part for name, part in stated.items() if name != "status"}))
    if job.problem:
        raise BadJobFile(f"{file}: {job.problem}")
    if job.suspend:
        raise BadJobFile(f"{file}: spec.suspend is true: it would not begin before that is false")
    others = [each for each in view.training_jobs.values() if each.job_id != job.job_id]
    own = StandingJobs([*others, job])
    look_again = observed(view.seen, TARGET_KINDS, view.unix_seconds, view.observed.state.slot_seconds, own=own)
    found = next((each for each in look_again.state.jobs if each.job_id == job.job_id), None)
    if found is None:
        raise BadJobFile(f"{file}: {look_again.left_out.get(job.job_id, 'no policy would be asked about it')}")
    notes = [job.unlisted] if job.unlisted else []
    if job.mode is not UpdateMode.AUTO:
        found = replace(found, max_workers=found.min_workers, max_ps=found.min_ps)
        notes.append(f"its updateMode is {job.mode}: it keeps the size with which it begins, the least")
    elif not job.is_resizable:
        notes.append("without spec.checkpoints its size stays as it begins: it may end later than is foreseen")
    total = found.total_epochs * found.samples_per_epoch if found.work_known else None
    usual = StandingJobs(others).usual(job.model_type)
    is_guess = total is not None and not usual.samples
    if is_guess:
        notes.append(
            f"how many samples an epoch of {job.model_type} has is not known here: {found.samples_per_epoch:g} are"
            " taken; --samples or --hours says more"
        )
    elif job.steps is not None and total is None:
        line = f"how many steps an epoch of {job.model_type} has is not known here"
        notes.append(f"{line}, so that spec.work.steps says nothing")
    there = tuple(each for each in look_again.state.jobs if each.job_id != job.job_id)
    return Asked(replace(found, job_id=NEW), total, replace(look_again.state, jobs=there), tuple(notes), is_guess)


def is_training_job(manifest: Json) -> bool:
    """Whether a manifest is a TrainingJob's."""
    return bool(manifest.get("kind") == TRAINING_JOBS.kind)


def speeds_stated(view: ClusterView) -> dict[str, float]:
    """Samples per second of TrainingJobs that train, by id, as their statuses have them."""
    found = {}
    for job in view.training_jobs.values():
        progress = job.status.get("progress")
        try:
            speed = float(progress["samplesPerSecond"]) if isinstance(progress, dict) else 0.0
        except (KeyError, TypeError, ValueError):
            continue
        if 0.0 < speed < float("inf"):
            found[job.job_id] = speed
    return found
