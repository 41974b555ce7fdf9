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
from dataclasses import dataclass
from pathlib import Path

from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, SpeedModel
from policy_net.errors import BadInput
from policy_net.simulation.catalogue import CATALOGUE, GPU_MODEL_NAMES, ModelProfile, find_model
from policy_net.simulation.cluster_size import ClusterSize, GpuRequest, clipped_gpu_load, nodes_for
from policy_net.simulation.csv_rows import Row, read_rows
from policy_net.simulation.source_options import WorkloadOptions
from policy_net.simulation.window import take_window
from policy_net.simulation.workload import JobSpec, Workload

LONGEST_SECONDS = 1e11
"""About 3,000 years, Unix times in seconds far within it: anything beyond is a slip of units or of the pen."""

TRACE_COLUMNS = ("job_id", "submit_time_s", "duration_s", "num_gpus")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One usable row: a job as it was recorded, its request already within 16 GPUs."""

    row: Row
    job_id: str
    request: GpuRequest
    asked_gpus: int
    stated_model: str | None


def read_trace(path: Path, options: WorkloadOptions) -> Workload:
    """Read a window of a real trace, with time from zero at its first job.

    Raises:
        BadInput: the file, a row, or the window cannot be used, or a job's tasks are larger than a node.
    """
    if options.gpus_per_node < 1:
        raise BadInput(f"{path}: gpus-per-node is {options.gpus_per_node}; a trace of GPU requests needs 1 or more")
    recorded, left_out = _read_jobs(path)
    chosen = take_window(recorded, options.limit_jobs, options.window, str(path))
    start = chosen[0].request.submit_seconds
    requests = [
        GpuRequest(job.request.submit_seconds - start, job.request.duration_seconds, job.request.gpus) for job in chosen
    ]
    load = clipped_gpu_load(requests)
    suggested = nodes_for(requests, load, options.gpus_per_node)
    cluster = ClusterSize(suggested, options.gpus_per_node, options.cpus_per_node)
    profiles = [_profile(job, options.seed) for job in chosen]
    jobs = [
        _to_job(job, request, profile, cluster, options.speeds)
        for job, request, profile in zip(chosen, requests, profiles, strict=True)
    ]
    too_large = sum(not cluster.holds(profile, job.requested) for profile, job in zip(profiles, jobs, strict=True))
    notes = [
        f"{path.name}: jobs {_range(options, len(chosen))} of {len(recorded)} by submit time, time from the first",
        *_notes_on_rows(chosen, profiles, left_out, options.seed),
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
    return Workload(path.stem, tuple(jobs), tuple(notes), suggested_nodes=suggested, slotted=False)


def _read_jobs(path: Path) -> tuple[list[TraceJob], int]:
    """All usable rows by submit time, rows of the same time as they stand; and the number of rows left out."""
    jobs: list[TraceJob] = []
    lines: dict[str, int] = {}
    left_out = 0
    for row in read_rows(path, TRACE_COLUMNS):
        job_id = row.text("job_id")
        if job_id in lines:
            raise row.bad("job_id", f"{job_id!r} stands in line {lines[job_id]} too", "give every job its own id")
        lines[job_id] = row.line
        gpus = row.whole("num_gpus", at_least=0)
        duration = row.number_from_zero("duration_s")
        submit = row.number("submit_time_s")
        for column, seconds in (("duration_s", duration), ("submit_time_s", submit)):
            if abs(seconds) > LONGEST_SECONDS:
                raise row.bad(column, f"is {row.text(column)!r}", f"use seconds, within ±{LONGEST_SECONDS:g}")
        if gpus == 0 or duration == 0:
            left_out += 1
            continue
        request = GpuRequest(submit, duration, min(gpus, MAX_TASKS_PER_ROLE))
        jobs.append(TraceJob(row, job_id, request, gpus, (row.cells.get("model") or "").strip() or None))
    if not jobs:
        raise BadInput(f"{path}: all {left_out} rows ask for no GPU or last no time; nothing is left to schedule")
    jobs.sort(key=lambda job: job.request.submit_seconds)
    return jobs, left_out


def _profile(job: TraceJob, seed: int) -> ModelProfile:
    """The stated model if it is known, else one assigned from the seed and the job's id."""
    profile = find_model(job.stated_model) if job.stated_model else None
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
    job: TraceJob, request: GpuRequest, profile: ModelProfile, cluster: ClusterSize, speeds: SpeedModel
) -> JobSpec:
    for role, demand in (("worker", profile.worker_demand), ("PS", profile.ps_demand)):
        if not demand.fits_in(cluster.node):
            raise job.row.bad(
                "job_id",
                f"is {job.job_id!r}, which never fits: a {role} of {profile.name} needs {demand.cpu_milli / 1000:g} CPU"
                f" and {demand.gpu} GPU, a node has {cluster.cpus_per_node} and {cluster.gpus_per_node}",
                "use larger nodes or leave the job out",
            )
    workers = request.gpus
    ps = suitable_ps(profile, workers, cluster, speeds)
    speed = speeds.samples_per_second(profile.name, ps, workers)
    if speed <= 0:
        raise job.row.bad(
            "num_gpus",
            f"is {job.asked_gpus}, but {profile.name} has no speed with {workers} workers",
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


def _notes_on_rows(chosen: Sequence[TraceJob], profiles: Sequence[ModelProfile], left_out: int, seed: int) -> list[str]:
    """What was assumed about single rows, and how many of them it concerns."""
    stated = sum(job.stated_model is not None and find_model(job.stated_model) is not None for job in chosen)
    unknown = sum(job.stated_model is not None and find_model(job.stated_model) is None for job in chosen)
    capped = sum(job.asked_gpus > MAX_TASKS_PER_ROLE for job in chosen)
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
    if left_out:
        notes.append(f"{left_out} rows of the file are left out: they ask for no GPU or last no time")
    return notes


def _range(options: WorkloadOptions, count: int) -> str:
    first = options.window * (options.limit_jobs or 0)
    return f"{first + 1}–{first + count}"
