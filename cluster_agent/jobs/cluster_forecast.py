"""Forecast of a Kubernetes Job or TrainingJob: when it would start and end if its manifest were applied now.

Twice: as sizes are today, each job with the size that it asks for, and as the policy would set them. What is free is
what kube-scheduler would count; pods of others stay as they are, and so do nodes. What is known of speeds is the
agent's, where its state is at hand, else what each job did on average since it began.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Group

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.backends.kubernetes.explanation import believed_speeds, measured_speeds
from cluster_agent.backends.kubernetes.observation import SeenCluster, observed
from cluster_agent.backends.kubernetes.views import ClusterView, StandingJobs, poll
from cluster_agent.errors import BadJobFile, ClusterRefused, JobRefused
from cluster_agent.jobs.cluster_access import Cluster, check_in_scope
from cluster_agent.jobs.forecast import (
    NEW,
    Draws,
    can_run,
    foreseen,
    named_by_kind,
    spec_of,
    time_in_words,
    with_guesses,
)
from cluster_agent.kubernetes.resources import JOBS, Resource
from cluster_agent.kubernetes.spec_fields import MOST_RANKS
from cluster_agent.kubernetes.targets import ELASTIC_TARGETS, ElasticTarget, elastic_target, job_facts
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, training_job
from cluster_agent.recording.last_decision import policy_of
from cluster_agent.recording.log_reading import last_decision
from cluster_agent.settings import PolicySettings
from foundation.figures import counted
from foundation.text import plain_line
from policy_net.domain import CapacityMode, ClusterState, Job, PolicyContext, Progress
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.throughput.parametric import OnlineFit

Json = dict[str, Any]
_LARGEST_BYTES = 4_000_000
_USE = "use a Job, and an ElasticTarget for it, or a TrainingJob"


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
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadJobFile(f"{name}: is no YAML: {reason}") from error
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


def job_of_manifest(view: ClusterView, manifest: Json, target: Json | None, file: Path) -> ManifestJob:
    """The job as it would be observed, once it were there.

    Raises:
        BadJobFile: it could not be used.
    """
    named = _named(manifest)
    name, namespace = named["name"], named["namespace"]
    manifest = {**manifest, "metadata": {**manifest["metadata"], **named, "uid": NEW}}
    try:
        facts = job_facts(manifest)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise BadJobFile(f"{file}: its Job cannot be read ({error}); check it with kubectl --dry-run=server") from error
    if not isinstance(facts.requested, int) or not 1 <= facts.requested <= MOST_RANKS:
        raise BadJobFile(f"{file}: spec.parallelism is {facts.requested!r}: use 1 to {MOST_RANKS}")
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
    with_job = observed(seen, view.unix_seconds, view.observed.state.slot_seconds, own=view.own)
    job_id = f"{namespace}/{NEW}"
    if job_id in with_job.left_out:
        raise BadJobFile(f"{file}: {with_job.left_out[job_id]}")
    job = next(job for job in with_job.state.jobs if job.job_id == job_id)
    member = with_job.members[job_id]
    total = member.total_samples if member.samples is not None else _stated_total(elastic, facts.annotations)
    others_there = tuple(job for job in with_job.state.jobs if job.job_id != job_id)
    return ManifestJob(replace(job, job_id=NEW), total, replace(with_job.state, jobs=others_there))


def training_job_of_manifest(view: ClusterView, manifest: Json, file: Path) -> ManifestJob:
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
    with_job = observed(view.seen, view.unix_seconds, view.observed.state.slot_seconds, own=own)
    found = next((each for each in with_job.state.jobs if each.job_id == job.job_id), None)
    if found is None:
        raise BadJobFile(f"{file}: {with_job.left_out.get(job.job_id, 'no policy would be asked about it')}")
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
    there = tuple(each for each in with_job.state.jobs if each.job_id != job.job_id)
    return ManifestJob(replace(found, job_id=NEW), total, replace(with_job.state, jobs=there), tuple(notes), is_guess)


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


def _stated_total(target: ElasticTarget, annotations: Any) -> float | None:
    """Of a job that has not begun: how many samples there will be, if its annotations say it already."""
    try:
        total = float(annotations.get(target.progress.total)) if target.progress else None
    except (TypeError, ValueError):
        return None
    return total if total is not None and 0.0 < total < float("inf") else None


AS_IT_IS = "fifo-backfill"
"""Every job as large as it asks for, whoever fits first: what kube-scheduler does."""
_LEAST_LEFT_SECONDS = 600.0
"""Of a job that says nothing of its work, and has only begun."""


@dataclass(frozen=True, slots=True)
class JobWork:
    """What a job has to do, by its user's word: samples, or hours at the size of its manifest; neither may be known."""

    samples: float | None = None
    hours: float | None = None


def foresee_manifest(cluster: Cluster, file: Path, work: JobWork, draws: Draws) -> Json:
    """When a manifest's job would start and end, in seconds from now.

    Raises:
        BadJobFile: it is no such manifest, or there can never be room for the job.
        ClusterRefused: this user may not see what is free.
        ApiError: the cluster cannot be read.
    """
    if work.samples is not None and work.hours is not None:
        raise BadJobFile("--samples and --hours both say how much work it is: give one of them")
    manifest, target = read_manifest(file)
    now = time.time()
    check_in_scope(cluster, namespace_of(manifest))
    view = poll(cluster.api, namespace_of(manifest), now, cluster.settings, trains=cluster.trains)
    if not view.sees_free_capacity:
        raise ClusterRefused(
            f"you may not read {' and '.join(view.unseen)} of the whole cluster, so what is free is not known; ask for"
            " the rights of the role fedl2-advice"
        )
    if manifest.get("kind") == TRAINING_JOBS.kind:
        if not cluster.trains:
            line = "the agent looks after no TrainingJobs; its configuration has no backend.training"
            raise JobRefused(f"{file}: {line}")
        manifest_job = training_job_of_manifest(view, manifest, file)
    else:
        manifest_job = job_of_manifest(view, manifest, target, file)
    notes = [view.meaning_of_free] if view.meaning_of_free else []
    notes += [] if view.serves_targets else ["no ElasticTargets here: all that runs counts as staying"]
    notes += manifest_job.notes if work.samples is None and work.hours is None else ()
    guesses: list[str] = []
    speeds, manifest_job = _speeds(cluster, view, manifest_job, work, notes, guesses)
    environment = _environment(cluster, manifest_job.cluster)
    left = [_with_left(job, speeds) for job in manifest_job.cluster.jobs]
    present = [job for job in left if can_run(spec_of(job, job.remaining_epochs), environment, speeds)]
    if left_out := len(manifest_job.cluster.jobs) - len(present):
        notes.append(f"{counted(left_out, 'job')} left out: there is no room for them now, whatever else ends")
    present.sort(key=lambda job: (job.current.workers == 0, job.submit_time_seconds))
    job = _with_work(manifest_job, work, speeds, guesses)
    unknown = sorted({job.job_type for job in present if job.work_known and not speeds.allocations_seen(job.job_type)})
    if unknown:
        guesses.append(
            f"nothing was measured of {', '.join(unknown)}, of which jobs are here: when they end is a guess"
        )
    is_guess = {"start": bool(unknown), "end": len(guesses) > bool(unknown)}
    advised, policy, version = _policy(cluster)
    try:
        as_it_is = foreseen(
            [_fixed(job) for job in present],
            _fixed(job),
            environment,
            build_policy(AS_IT_IS, PolicyContext()),
            speeds,
            draws,
        )
        under_advice = foreseen(present, job, environment, advised, speeds, draws)
    except BadInput as error:
        reason = str(error).removeprefix("workload 'now': ").replace(f"job {NEW!r}", "the job")
        raise BadJobFile(f"{file}: {reason}") from error
    return {
        "asItIs": with_guesses(as_it_is, **is_guess),
        "advised": with_guesses(under_advice, **is_guess),
        "workers": {"requested": job.requested.workers, "min": job.min_workers, "max": job.max_workers},
        "ps": {"requested": job.requested.ps, "min": job.min_ps, "max": job.max_ps},
        "policy": policy,
        "version": version,
        "jobsPresent": len(present),
        "runs": draws.runs,
        "seed": draws.seed,
        "notes": [*guesses, *notes],
    }


def _speeds(
    cluster: Cluster, view: ClusterView, manifest_job: ManifestJob, work: JobWork, notes: list[str], guesses: list[str]
) -> tuple[OnlineFit, ManifestJob]:
    """Speeds that the simulation takes for true, and the jobs by types of which they are; adds notes and guesses."""
    fit = None if cluster.state_dir is None else measured_speeds(cluster.state_dir)
    if fit is None:
        fit = OnlineFit()
        stated = _stated_speeds(view)
        for job in view.observed.state.jobs:
            if job.current.workers and (speed := stated.get(job.job_id)):
                fit.observe([Progress(job.job_id, job.job_type, job.current, 1.0, speed, speed, 1.0)])
            member = view.observed.members.get(job.job_id)
            if member is not None and member.samples and job.run_seconds > 0.0 and job.current.workers:
                done = member.samples
                fit.observe([Progress(job.job_id, job.job_type, job.current, job.run_seconds, done, done, 1.0)])
        notes.append("speeds are what each job trained on average since it began: no agent's state is at hand")
    jobs = [*manifest_job.cluster.jobs, manifest_job.job]
    fit.introduce(jobs)
    *others, job = named_by_kind(jobs, fit)
    manifest_job = replace(manifest_job, job=job, cluster=replace(manifest_job.cluster, jobs=tuple(others)))
    if not fit.allocations_seen(manifest_job.job.job_type):
        prior = believed_speeds(manifest_job.job.job_type, None, kind=job.kind)
        if prior.has_scale:
            grid = prior.speeds
            size = manifest_job.job.requested
            speed = grid.samples_per_second(manifest_job.job.job_type, size.ps, size.workers)
            fit.observe([Progress(NEW, manifest_job.job.job_type, size, 1.0, speed, speed, 1.0)])
            notes.append(
                f"nothing was measured of {manifest_job.job.job_type} here: its speed is that of the shipped priors"
            )
        else:
            line = f"nothing was measured of {manifest_job.job.job_type} here: its speed is a guess"
            # Of hours at the size of the manifest a speed is no part; only other sizes hang on its shape.
            (guesses if work.hours is None else notes).append(f"{line}; --hours says more")
    return fit, manifest_job


def _stated_speeds(view: ClusterView) -> dict[str, float]:
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


def _environment(cluster: Cluster, state: ClusterState) -> Environment:
    capacities = [node.capacity for node in state.nodes if node.capacity.cpu_milli > 0]
    if not capacities:
        raise BadJobFile("no node has any room that jobs of this cluster could have; nothing can be foreseen")
    return Environment(
        nodes=len(capacities),
        node_sizes=tuple(capacities),
        slot_seconds=cluster.settings.slot_seconds,
        decide_on=DecideOn.EVENT,
        debounce_seconds=cluster.settings.debounce_seconds,
        capacity_mode=CapacityMode.NODES,
    )


def _with_left(job: Job, speeds: OnlineFit) -> Job:
    """A job whose work nobody knows trains for as long again as it did."""
    if job.work_known:
        return job
    size = job.current if job.current.workers else job.requested
    speed = speeds.samples_per_second(job.job_type, size.ps, size.workers)
    return replace(job, remaining_epochs=max(job.run_seconds, _LEAST_LEFT_SECONDS) * speed / job.samples_per_epoch)


def _fixed(job: Job) -> Job:
    size = job.current if job.current.workers else job.requested
    workers, servers = size.workers, size.ps
    return replace(job, requested=size, min_workers=workers, max_workers=workers, min_ps=servers, max_ps=servers)


def _with_work(manifest_job: ManifestJob, work: JobWork, speeds: OnlineFit, guesses: list[str]) -> Job:
    job = manifest_job.job
    hour = 3600.0 * speeds.samples_per_second(job.job_type, job.requested.ps, job.requested.workers)
    total = work.samples if work.samples is not None else manifest_job.total
    is_guess = manifest_job.is_guess and work.samples is None and work.hours is None
    if work.hours is not None:
        total = work.hours * hour
    if total is None:
        guesses.append("its manifest does not say its work: an hour is taken; say --samples or --hours")
    epochs = hour if total is None else total
    known = total is not None and not is_guess
    return replace(job, samples_per_epoch=1.0, total_epochs=epochs, remaining_epochs=epochs, work_known=known)


def _policy(cluster: Cluster) -> tuple[SchedulerPolicy, str, int]:
    """The policy that decides on this cluster, as far as it is at hand, its name and version."""
    line = None if cluster.state_dir is None else last_decision(cluster.state_dir)
    if line is not None and cluster.state_dir is not None:
        folder = cluster.state_dir
        if (policy := policy_of(folder, line)) is not None:
            return policy, str(line["policy"]), int(line["version"])
    policy_named = CandidateFactory(PolicySettings()).from_name_or_file(cluster.policy).policy
    return policy_named, Path(cluster.policy).name, 0


def sentences(answer: Json) -> Group:
    """The answer for people; lines fold where a terminal is narrow."""
    version = f" v{answer['version']}" if answer["version"] else ""
    seed = answer["seed"]
    lines = []
    roles = [(answer["workers"], "worker"), *([(answer["ps"], "PS")] if answer["ps"]["max"] else [])]
    fixed = " and ".join(counted(sizes["requested"], noun) for sizes, noun in roles)
    elastic = " and ".join(_bounds(sizes, noun) for sizes, noun in roles)
    ways = {
        "asItIs": f"with {fixed}, as sizes are today",
        "advised": f"with {elastic}, as {answer['policy']}{version} sets sizes",
    }
    for key, words in ways.items():
        start, end = answer[key]["start"], answer[key]["end"]
        lines += [
            f"{words}:",
            f"  starts in {time_in_words(start)}",
            f"  ends in {time_in_words(end)}",
        ]
    first = answer["advised"]
    bounds = "" if first["start"]["guess"] else "; 8 of 10 runs lie within the bounds"
    lines += [
        f"simulated {counted(answer['runs'], 'time')} from seed {seed},"
        f" beside {counted(answer['jobsPresent'], 'job')}{bounds}",
    ]
    notes = [plain_line(note) for note in answer["notes"]]
    return Group(*notes, *lines) if first["end"]["guess"] else Group(*lines, *notes)


def _bounds(sizes: dict[str, int], noun: str) -> str:
    few, most = sizes["min"], sizes["max"]
    return f"{few} to {counted(most, noun)}" if few < most else counted(most, noun)
