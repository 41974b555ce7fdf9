"""Real traces: who asked for how many GPUs, when, and for how long; and what we assume beyond that.

A trace knows no models, speeds or parameter servers. The assumptions below are printed with every result.

- A GPU model is assigned to every job from the seed and the job's id, so that a job is of the same model in every
  window; a `model` column that names a known model is believed.
- Requests above 16 GPUs count as 16, and become that many workers, with as many PSs (at most 16) as make that many
  workers fastest, out of those that the CPU which a node has beside every GPU leaves room for. Thus a request never
  takes more than its share of CPU, and GPUs are the measure of load. Without this bound one VGG-16 worker would take
  14 PSs, the CPU of almost 4 default nodes.
- The job's work is what that allocation trains in the recorded duration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, SpeedModel
from policy_net.errors import BadInput
from policy_net.simulation.catalogue import CATALOGUE, GPU_MODEL_NAMES, ModelProfile, find_model
from policy_net.simulation.cluster_size import ClusterSize, GpuRequest, clipped_gpu_load, nodes_for
from policy_net.simulation.loaders.csv_trace import read_csv
from policy_net.simulation.loaders.record import RecordedJob, Recording
from policy_net.simulation.source_options import WorkloadOptions
from policy_net.simulation.window import take_window
from policy_net.simulation.workload import JobSpec, Workload


def read_trace(path: Path, options: WorkloadOptions) -> Workload:
    """Read a window of a csv of jobs, with time from zero at its first job.

    Raises:
        BadInput: the file, a row, or the window cannot be used, or a job's tasks are larger than a node.
    """
    return workload_of(read_csv(path, options.strict), options)


def workload_of(recording: Recording, options: WorkloadOptions) -> Workload:
    """A window of recorded jobs, with time from zero at its first job; the same for every loader.

    Raises:
        BadInput: there is no such window, or a job's tasks are larger than a node.
    """
    path = recording.path
    if options.gpus_per_node < 1:
        raise BadInput(f"{path}: gpus-per-node is {options.gpus_per_node}; a trace of GPU requests needs 1 or more")
    chosen = take_window(recording.records, options.limit_jobs, options.window, str(path))
    start = chosen[0].submit_seconds
    requests = [
        GpuRequest(job.submit_seconds - start, job.duration_seconds, min(job.gpus, MAX_TASKS_PER_ROLE))
        for job in chosen
    ]
    load = clipped_gpu_load(requests)
    suggested = nodes_for(requests, load, options.gpus_per_node)
    cluster = ClusterSize(suggested, options.gpus_per_node, options.cpus_per_node)
    profiles = [_profile(job, options.seed) for job in chosen]
    jobs = [
        _to_job(recording, job, request, profile, cluster, options.speeds)
        for job, request, profile in zip(chosen, requests, profiles, strict=True)
    ]
    too_large = sum(not cluster.holds(profile, job.requested) for profile, job in zip(profiles, jobs, strict=True))
    notes = [
        f"{path.name}: jobs {_range(options, len(chosen))} of {len(recording.records)} by submit time,"
        " time from the first",
        *recording.notes,
        *_notes_on_rows(chosen, profiles, options.seed),
        "every GPU asked for is a worker; PSs: the number (at most 16) with which that many workers train fastest,"
        f" within the CPU beside the GPUs ({options.cpus_per_node} CPU and {options.gpus_per_node} GPU a node)",
        "work = recorded duration × speed at the requested workers and PSs",
        f"load: {load:.1f} GPUs on average (durations clipped at the last submission), largest request"
        f" {max(request.gpus for request in requests)}; a load of 0.9 suggests {suggested} nodes",
    ]
    if too_large:
        notes.append(
            f"{too_large} requests need more CPU than {suggested} nodes of {options.cpus_per_node} CPU have:"
            " a fixed-size scheduler cannot start them there"
        )
    return Workload(recording.name, tuple(jobs), tuple(notes), suggested_nodes=suggested, slotted=False)


def _profile(job: RecordedJob, seed: int) -> ModelProfile:
    """The stated model if it is known, else one assigned from the seed and the job's id."""
    profile = find_model(job.model) if job.model else None
    if profile is None:
        digest = hashlib.sha256(f"{seed}:{job.job_id}".encode()).digest()
        name = GPU_MODEL_NAMES[int.from_bytes(digest[:8], "big") % len(GPU_MODEL_NAMES)]
        profile = CATALOGUE[name]
    return profile


def suitable_ps(profile: ModelProfile, workers: int, cluster: ClusterSize, speeds: SpeedModel) -> int:
    """The number of PSs (at least 1) that makes `workers` fastest within the CPU beside the GPUs; ties: the fewest."""
    cpu_beside_gpu = cluster.cpus_per_node * 1000 / cluster.gpus_per_node - profile.worker_demand.cpu_milli
    room = int(workers * cpu_beside_gpu // profile.ps_demand.cpu_milli)
    most = min(max(room, 1), MAX_TASKS_PER_ROLE)
    return 1 + int(speeds.grid(profile.name)[1 : most + 1, workers].argmax())


def _to_job(
    recording: Recording,
    job: RecordedJob,
    request: GpuRequest,
    profile: ModelProfile,
    cluster: ClusterSize,
    speeds: SpeedModel,
) -> JobSpec:
    for role, demand in (("worker", profile.worker_demand), ("PS", profile.ps_demand)):
        if not demand.fits_in(cluster.node):
            raise recording.bad(
                job,
                f"never fits: a {role} of {profile.name} needs {demand.cpu_milli / 1000:g} CPU"
                f" and {demand.gpu} GPU, a node has {cluster.cpus_per_node} and {cluster.gpus_per_node}",
                "use larger nodes or leave the job out",
            )
    workers = request.gpus
    ps = suitable_ps(profile, workers, cluster, speeds)
    speed = speeds.samples_per_second(profile.name, ps, workers)
    if speed <= 0:
        raise recording.bad(
            job,
            f"asks for {job.gpus} GPUs, but {profile.name} has no speed with {workers} workers",
            "mend the speeds",
        )
    return JobSpec(
        job_id=job.job_id,
        job_type=profile.name,
        submit_time_seconds=request.submit_seconds,
        total_epochs=request.duration_seconds * speed / profile.samples_per_epoch,
        samples_per_epoch=profile.samples_per_epoch,
        worker_demand=profile.worker_demand,
        ps_demand=profile.ps_demand,
        requested=Allocation(workers, ps),
    )


def _notes_on_rows(chosen: Sequence[RecordedJob], profiles: Sequence[ModelProfile], seed: int) -> list[str]:
    """What was assumed about single rows, and how many of them it concerns."""
    stated = sum(job.model is not None and find_model(job.model) is not None for job in chosen)
    unknown = sum(job.model is not None and find_model(job.model) is None for job in chosen)
    capped = sum(job.gpus > MAX_TASKS_PER_ROLE for job in chosen)
    cpu_only = sum(profile.worker_demand.gpu == 0 for profile in profiles)
    notes = [f"models: {stated} as the file says, {len(chosen) - stated} assigned from seed {seed} among GPU models"]
    if unknown:
        notes.append(f"{unknown} jobs name a model that is not known; theirs are assigned")
    if cpu_only:
        notes.append(
            f"{cpu_only} jobs are of CPU-only models: their GPUs count as workers and as load, but take no GPU"
        )
    if capped:
        notes.append(f"{capped} requests above {MAX_TASKS_PER_ROLE} GPUs count as {MAX_TASKS_PER_ROLE}")
    return notes


def _range(options: WorkloadOptions, count: int) -> str:
    first = options.window * (options.limit_jobs or 0)
    return f"{first + 1}–{first + count}"
