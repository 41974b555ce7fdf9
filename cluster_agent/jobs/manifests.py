"""Manifest of a TrainingJob, or of a Job and its ElasticTarget, as a job that a policy could be asked about."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from cluster_agent.backends.kubernetes.backend import KINDS
from cluster_agent.backends.kubernetes.observation import SeenCluster, observed
from cluster_agent.backends.kubernetes.views import ClusterView, StandingJobs
from cluster_agent.errors import BadJobFile
from cluster_agent.jobs.forecast import NEW
from cluster_agent.kubernetes.resources import JOBS, Resource
from cluster_agent.kubernetes.targets.elastic_target import ELASTIC_TARGETS, MOST_WORKERS, ElasticTarget, elastic_target
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, training_job
from foundation.figures import counted
from policy_net.domain import ClusterState, Job

Json = dict[str, Any]
_LARGEST_BYTES = 4_000_000
_USE = "use a Job, and an ElasticTarget for it, or a TrainingJob"
_TARGET_KINDS: Final = frozenset({f"{JOBS.api_version} {JOBS.kind}"})
"""Of the objects that a forecast takes for elastic: `ElasticTarget`s may point at more."""


@dataclass(frozen=True, slots=True)
class ManifestJob:
    """A job as its manifest has it.

    Attributes:
        job: seen as if it were there; its work is `total`, None where the manifest does not say it.
        cluster: the others that are there, and what nodes they and it could come to.
        notes: what its user should know of the forecast.
        is_guess: whether `total` is no more than likely.
    """

    job: Job
    total: float | None
    cluster: ClusterState
    notes: tuple[str, ...] = ()
    is_guess: bool = False


def read_manifest(file: Path) -> tuple[Json, Json | None]:
    """A Job and, where the file has one for it, its ElasticTarget; or a TrainingJob.

    Raises:
        BadJobFile: it cannot be read, or holds anything but one of these.
    """
    name = "standard input" if str(file) == "-" else str(file)
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            content = stream.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise BadJobFile(f"{name}: larger than {_LARGEST_BYTES >> 20} MB; is it a manifest?")
        documents = [each for each in yaml.safe_load_all(content) if each is not None]
    except OSError as error:
        raise BadJobFile(f"{name}: cannot be read ({error.strerror}); name a manifest") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise BadJobFile(f"{name}: is no YAML: {said}") from error
    found: dict[str, list[Json]] = {JOBS.kind: [], ELASTIC_TARGETS.kind: [], TRAINING_JOBS.kind: []}
    for number, each in enumerate(documents, 1):
        if not isinstance(each, dict) or not isinstance(each.get("metadata"), dict) or "kind" not in each:
            raise BadJobFile(f"{name}, document {number}: is no Kubernetes object (kind, metadata)")
        if each["kind"] not in found:
            raise BadJobFile(f"{name}, document {number}: is a {each['kind']}: {_USE}")
        found[each["kind"]].append(each)
    if found[TRAINING_JOBS.kind]:
        if len(documents) > 1:
            raise BadJobFile(f"{name}: has {len(documents)} objects: one TrainingJob is foreseen at a time, alone")
        (job,) = found.pop(TRAINING_JOBS.kind)
        return _of_version(job, TRAINING_JOBS, name), None
    del found[TRAINING_JOBS.kind]
    if len(found[JOBS.kind]) != 1 or len(found[ELASTIC_TARGETS.kind]) > 1:
        counts = " and ".join(counted(len(each), kind) for kind, each in found.items())
        raise BadJobFile(f"{name}: has {counts}: one Job is foreseen at a time, with one ElasticTarget at most")
    (job,) = found[JOBS.kind]
    return _of_version(job, JOBS, name), next(iter(found[ELASTIC_TARGETS.kind]), None)


def _of_version(job: Json, resource: Resource, name: str) -> Json:
    if job.get("apiVersion") != resource.api_version:
        raise BadJobFile(f"{name}: its {resource.kind} is of {job.get('apiVersion')!r}: use {resource.api_version}")
    return job


def asked_job(view: ClusterView, manifest: Json, target: Json | None, file: Path) -> ManifestJob:
    """The job as it would be observed, once it were there.

    Raises:
        BadJobFile: it could not be used.
    """
    named = _named(manifest)
    name, namespace = named["name"], named["namespace"]
    manifest = {**manifest, "metadata": {**manifest["metadata"], **named, "uid": NEW}}
    kind = next(each for each in KINDS if each.resource == JOBS)
    try:
        facts = kind.facts(manifest)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise BadJobFile(f"{file}: its Job cannot be read ({error}); check it with kubectl --dry-run=server") from error
    if not isinstance(facts.requested, int) or not 1 <= facts.requested <= MOST_WORKERS:
        raise BadJobFile(f"{file}: spec.parallelism is {facts.requested!r}: use 1 to {MOST_WORKERS}")
    if target is None:
        # Of a fixed size: nothing has to be said of its kind, as nobody changes it.
        facts = replace(facts, obstacle="")
        ref = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": name}
        spec: Json = {"targetRef": ref, "min": facts.requested, "max": facts.requested}
        target = {"metadata": {"name": name}, "spec": spec}
    elif not _points_at(target.get("spec"), name):
        raise BadJobFile(f"{file}: its ElasticTarget points at another Job: spec.targetRef.name is to be {name}")
    else:
        target = {**target, "spec": {"min": 1, **target["spec"]}}
    elastic: ElasticTarget = elastic_target(
        {**target, "metadata": {**target["metadata"], "name": NEW, "namespace": namespace}}
    )
    found = {**view.seen.found, (JOBS.kind, namespace, name): replace(facts, workers=0)}
    others = [each for each in view.seen.targets if (each.namespace, each.ref.name) != (namespace, name)]
    seen = SeenCluster(view.seen.nodes, view.seen.pods, [*others, elastic], found)
    look_again = observed(seen, _TARGET_KINDS, view.unix_seconds, view.observed.state.slot_seconds, own=view.own)
    job_id = f"{namespace}/{NEW}"
    if job_id in look_again.left_out:
        raise BadJobFile(f"{file}: {look_again.left_out[job_id]}")
    job = next(job for job in look_again.state.jobs if job.job_id == job_id)
    member = look_again.members[job_id]
    said = member.total_samples if member.samples is not None else _said_total(elastic, facts.annotations)
    others_there = tuple(job for job in look_again.state.jobs if job.job_id != job_id)
    return ManifestJob(replace(job, job_id=NEW), said, replace(look_again.state, jobs=others_there))


def asked_training_job(view: ClusterView, manifest: Json, file: Path) -> ManifestJob:
    """The job as its agent would observe it, once it were there.

    Raises:
        BadJobFile: it could not be used, or would not begin.
    """
    stated = {**manifest, "metadata": {**_named(manifest), "uid": NEW}}
    # As if it were made now: what an earlier one of its name has come to says nothing of it.
    job = view.rights.judged(training_job({name: part for name, part in stated.items() if name != "status"}))
    if job.problem:
        raise BadJobFile(f"{file}: {job.problem}")
    if job.suspend:
        raise BadJobFile(f"{file}: spec.suspend is true: it would not begin before that is false")
    others = [each for each in view.training_jobs.values() if each.job_id != job.job_id]
    own = StandingJobs([*others, job])
    look_again = observed(view.seen, _TARGET_KINDS, view.unix_seconds, view.observed.state.slot_seconds, own=own)
    found = next((each for each in look_again.state.jobs if each.job_id == job.job_id), None)
    if found is None:
        raise BadJobFile(f"{file}: {look_again.left_out.get(job.job_id, 'no policy would be asked about it')}")
    notes = [job.unlisted] if job.unlisted else []
    if job.mode is not JobUpdateMode.AUTO:
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
    return ManifestJob(replace(found, job_id=NEW), total, replace(look_again.state, jobs=there), tuple(notes), is_guess)


def namespace_of(manifest: Json) -> str:
    """Where kubectl would put it, unless told otherwise."""
    return str(manifest["metadata"].get("namespace") or "default")


def _named(manifest: Json) -> dict[str, str]:
    metadata = manifest["metadata"]
    name = str(metadata.get("name") or metadata.get("generateName") or NEW)
    return {"name": name, "namespace": namespace_of(manifest)}


def _points_at(spec: Any, name: str) -> bool:
    ref = spec.get("targetRef") if isinstance(spec, dict) else None
    return isinstance(ref, dict) and ref.get("name") == name


def _said_total(target: ElasticTarget, annotations: Any) -> float | None:
    """Of a job that has not begun: how many samples there will be, if its annotations say it already."""
    try:
        total = float(annotations.get(target.progress.total)) if target.progress else None
    except (TypeError, ValueError):
        return None
    return total if total is not None and 0.0 < total < float("inf") else None
