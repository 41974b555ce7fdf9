"""Recorded jobs as a workload: who asked for how many GPUs, when, and for how long; and what we assume beyond that.

A trace knows no models, speeds or parameter servers. The assumptions below are printed with every result.

- A GPU model of the chosen kind is assigned to every job from the seed and the job's id, so that a job is of the same
  kind and model in every window and under every cluster size; a `model` column that names a known model is believed.
- Every GPU asked for becomes a worker, up to 64 of an all-reduce job and up to 16 of a PS job; larger requests count as
  that many, and so do those beyond the speeds that are known. A PS job asks for as many PSs (at most 16) as make that
  many workers fastest, out of those that the CPU which a node has beside every GPU leaves room for, so that GPUs are
  the measure of load. Without this bound one VGG-16 worker would take 14 PSs, the CPU of almost 4 default nodes.
- The job's work is what that allocation trains in the recorded duration.
- Machines are as the user says, else as the log shows them, else assumed; a note says which.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from foundation.figures import counted
from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, JobKind, Resources, SpeedModel, speed_at
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import CATALOGUE, ModelProfile, find_model, model_names
from policy_net.laboratory.workloads.loaders.record import RecordedJob, Recording
from policy_net.laboratory.workloads.workload import (
    FigureOrigin,
    JobKindChoice,
    JobRecord,
    Machines,
    Workload,
    WorkloadJob,
    WorkloadOptions,
    job_of,
    take_window,
)

ASSUMED_GPUS = 2
"""Of a machine of which neither the user nor the log says anything."""
USUAL_MOST_GPUS = 16
"""Of one machine; where more were held at a time, their name may be that of slices."""
ASSUMED_CPUS, ASSUMED_CPUS_PER_GPU = 8, 4
"""CPU cores of a machine of which nobody says how many: so many, or so many for each of its GPUs if that is more."""

_KIND_WORDS = {
    JobKind.PS: "synchronous over parameter servers",
    JobKind.ASYNC: "asynchronous over parameter servers",
    JobKind.ALLREDUCE: "by all-reduce",
}

_SHORT_SECONDS, _LONG_SECONDS = 1.0, 14 * 86400.0
"""Training jobs whose usual duration lies outside are more likely hours, or milliseconds, than what they say."""


def machines_of(records: Sequence[RecordedJob]) -> ClusterSize | None:
    """The nodes that a recording names, all taken to be like the largest; None where it names none.

    Of one, GPUs and CPU cores are the most that was held of it at a time, as far as that was recorded.
    """
    changes: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for job in records:
        for share in job.shares:
            changes[share.node] += [
                (share.start_seconds, share.gpus, share.cpus),
                (share.end_seconds, -share.gpus, -share.cpus),
            ]
    if not changes:
        return None
    peaks = [_peak(of_node) for of_node in changes.values()]
    return ClusterSize(len(changes), max(gpus for gpus, _ in peaks), max(cpus for _, cpus in peaks))


def _peak(changes: list[tuple[float, int, int]]) -> tuple[int, int]:
    """The most GPUs and CPU cores that were held of a node at a time; at the same moment what ends comes first."""
    gpus = cpus = most_gpus = most_cpus = 0
    for _, by_gpus, by_cpus in sorted(changes):
        gpus, cpus = gpus + by_gpus, cpus + by_cpus
        most_gpus, most_cpus = max(most_gpus, gpus), max(most_cpus, cpus)
    return most_gpus, most_cpus


def trace_of(recording: Recording, options: WorkloadOptions) -> Workload:
    """As `workload_of`, of our own csv, whose times may be in other units than its columns say."""
    workload = workload_of(recording, options)
    usual = median(job.duration_seconds for job in recording.records)
    if _SHORT_SECONDS <= usual <= _LONG_SECONDS:
        return workload
    shown = f"more than {usual / 86400:,.0f} days" if usual > _LONG_SECONDS else f"less than {_SHORT_SECONDS:g} s"
    doubt = f"half of the jobs ran for {shown}: are submit_time_s and duration_s in seconds?"
    return replace(workload, notes=(*workload.notes, doubt))


def workload_of(recording: Recording, options: WorkloadOptions) -> Workload:
    """A window of recorded jobs, with time from zero at its first job; the same for every loader.

    Raises:
        BadInput: there is no such window, or a job's tasks are larger than a node.
    """
    path = recording.path
    if options.gpus_per_node is not None and options.gpus_per_node < 1:
        raise BadInput(f"{path}: gpus-per-node is {options.gpus_per_node}; a trace of GPU requests needs 1 or more")
    chosen = take_window(recording.records, options.limit_jobs, options.window, str(path))
    start = chosen[0].submit_seconds
    stated = [stated_profile(job, options.job_kind, options.seed) for job in chosen]
    profiles = [
        profile or assigned_profile(job, options.job_kind, options.seed)
        for job, profile in zip(chosen, stated, strict=True)
    ]
    requests = [
        GpuRequest(
            job.submit_seconds - start, job.duration_seconds, min(job.gpus, most_gpus_counted(profile, options.speeds))
        )
        for job, profile in zip(chosen, profiles, strict=True)
    ]
    load = clipped_gpu_load(requests)
    seen = machines_of(recording.records)
    machines = machines_for(options, seen)
    suggested = machines.nodes or nodes_for(requests, load, machines.gpus_per_node)
    cluster = ClusterSize(suggested, machines.gpus_per_node, machines.cpus_per_node)
    jobs = [
        _to_job(recording, job, request, profile, cluster, options.speeds)
        for job, request, profile in zip(chosen, requests, profiles, strict=True)
    ]
    too_large = sum(not cluster.holds(profile, job.requested) for profile, job in zip(profiles, jobs, strict=True))
    notes = [
        f"{path.name}: jobs {_range(options, len(chosen))} of {len(recording.records)} by submit time,"
        " time from the first",
        *recording.notes,
        *_notes_on_models(chosen, stated, profiles, options.seed),
        *_notes_on_requests(chosen, profiles, requests, cluster),
        "work = recorded duration × speed at the requested size",
        f"load: {load:.1f} GPUs on average (durations clipped at the last submission), largest request"
        f" {max(request.gpus for request in requests)}; a load of 0.9 suggests"
        f" {counted(nodes_for(requests, load, machines.gpus_per_node), 'node')}",
        *_notes_on_machines(machines, seen, options.machine_options),
    ]
    if too_large:
        notes.append(
            f"{counted(too_large, 'request')} {'needs' if too_large == 1 else 'need'} more than"
            f" {counted(suggested, 'node')} of {machines.cpus_per_node} CPU and {machines.gpus_per_node} GPU"
            f" {'has' if suggested == 1 else 'have'}: cut to what there is, under every policy"
        )
    return Workload(
        recording.name,
        tuple(jobs),
        tuple(notes),
        suggested_nodes=suggested,
        slotted=False,
        machines=machines,
        records={
            job.job_id: JobRecord(job.gpus, job.wait_seconds, job.jct_seconds, job.user, job.account, job.partition)
            for job in chosen
        },
        skipped=recording.skipped,
    )


def machines_for(options: WorkloadOptions, seen: ClusterSize | None) -> Machines:
    """The machines that requests are made for: as given, else as the log shows them, else assumed."""
    nodes, nodes_by = options.nodes, FigureOrigin.GIVEN
    if nodes is None:
        nodes, nodes_by = (None, FigureOrigin.ASSUMED) if seen is None else (seen.nodes, FigureOrigin.LOG)
    gpus, gpus_by = options.gpus_per_node, FigureOrigin.GIVEN
    if gpus is None:
        gpus, gpus_by = (
            (ASSUMED_GPUS, FigureOrigin.ASSUMED) if seen is None else (max(seen.gpus_per_node, 1), FigureOrigin.LOG)
        )
    cpus, cpus_by = options.cpus_per_node, FigureOrigin.GIVEN
    if cpus is None:
        # A job that held few cores beside its GPUs did so on a machine that had more.
        cpus, cpus_by = max(ASSUMED_CPUS, ASSUMED_CPUS_PER_GPU * gpus), FigureOrigin.ASSUMED
        if seen is not None and seen.cpus_per_node > cpus:
            cpus, cpus_by = seen.cpus_per_node, FigureOrigin.LOG
    return Machines(nodes, gpus, cpus, nodes_by, gpus_by, cpus_by)


def _notes_on_machines(machines: Machines, seen: ClusterSize | None, options_named: str) -> list[str]:
    notes = []
    if seen is not None:
        shown = f"{counted(seen.nodes, 'node')}, on one of which {seen.gpus_per_node} GPUs were held at a time at most"
        notes.append(f"machines in the log: {shown}; what was idle all the time is not seen")
        if seen.gpus_per_node > USUAL_MOST_GPUS:
            notes.append(
                f"{seen.gpus_per_node} GPUs of one node are more than a machine has ({USUAL_MOST_GPUS}): slices under"
                " the name of whole ones? Then GPU-hours are those of slices"
            )
        if FigureOrigin.GIVEN in (machines.nodes_by, machines.gpus_by) and (
            (machines.nodes, machines.gpus_per_node) != (seen.nodes, seen.gpus_per_node)
        ):
            notes.append("machines: as given, not as in the log")
    assumed = [f"{machines.gpus_per_node} GPUs each"] if machines.gpus_by is FigureOrigin.ASSUMED else []
    assumed += [f"{machines.cpus_per_node} CPU cores each"] if machines.cpus_by is FigureOrigin.ASSUMED else []
    assumed += ["their number by the load"] if machines.nodes_by is FigureOrigin.ASSUMED else []
    if assumed:
        notes.append(f"machines assumed: {', '.join(assumed)}; say {options_named}")
    return notes


def most_gpus_counted(profile: ModelProfile, speeds: SpeedModel) -> int:
    """The largest request that is taken as it is: of those that such a job may make, and whose speed is known."""
    known = np.flatnonzero(speeds.grid(profile.name).any(axis=0))
    return min(profile.kind.most_workers, max(MAX_TASKS_PER_ROLE, int(known[-1]) if len(known) else 0))


def suitable_ps(profile: ModelProfile, workers: int, cluster: ClusterSize, speeds: SpeedModel) -> int:
    """The number of PSs that makes `workers` fastest within the CPU beside the GPUs (at least 1); ties: the fewest."""
    if not profile.kind.uses_ps:
        return 0
    cpu_beside_gpu = cluster.cpus_per_node * 1000 / cluster.gpus_per_node - profile.worker_demand.cpu_milli
    free_capacity = int(workers * cpu_beside_gpu // profile.ps_demand.cpu_milli)
    most = min(max(free_capacity, 1), MAX_TASKS_PER_ROLE)
    grid = speeds.grid(profile.name)
    return 1 + int(np.argmax([speed_at(grid, ps, workers) for ps in range(1, most + 1)]))


def _to_job(
    recording: Recording,
    job: RecordedJob,
    request: GpuRequest,
    profile: ModelProfile,
    cluster: ClusterSize,
    speeds: SpeedModel,
) -> WorkloadJob:
    demands = {"worker": profile.worker_demand} | ({"PS": profile.ps_demand} if profile.kind.uses_ps else {})
    for role, demand in demands.items():
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
    epochs = request.duration_seconds * speed / profile.samples_per_epoch
    return job_of(profile, job.job_id, request.submit_seconds, epochs, Allocation(workers, ps))


def _notes_on_models(
    chosen: Sequence[RecordedJob], stated: Sequence[ModelProfile | None], profiles: Sequence[ModelProfile], seed: int
) -> list[str]:
    believed = sum(profile is not None for profile in stated)
    unknown = sum(bool(job.model) and profile is None for job, profile in zip(chosen, stated, strict=True))
    kinds = Counter(profile.kind for profile in profiles)
    notes = [
        "jobs: " + ", ".join(f"{kinds[kind]} {_KIND_WORDS[kind]}" for kind in JobKind if kinds[kind]),
        f"models: {believed} as the file says, {len(chosen) - believed} assigned from seed {seed} among GPU models",
    ]
    if unknown:
        notes.append(f"{unknown} jobs name a model that is not known; theirs are assigned")
    return notes


def _notes_on_requests(
    chosen: Sequence[RecordedJob],
    profiles: Sequence[ModelProfile],
    requests: Sequence[GpuRequest],
    cluster: ClusterSize,
) -> list[str]:
    notes = ["every GPU asked for is a worker"]
    if any(profile.kind.uses_ps for profile in profiles):
        notes.append(
            "PSs: the number (at most 16) with which that many workers train fastest, within the CPU beside the GPUs"
            f" ({cluster.cpus_per_node} CPU and {cluster.gpus_per_node} GPU a node)"
        )
    if any(profile.kind is JobKind.ASYNC for profile in profiles):
        notes.append("speeds of asynchronous jobs follow from synchronous measurements; stale gradients cost nothing")
    cpu_only = sum(profile.worker_demand.gpu == 0 for profile in profiles)
    if cpu_only:
        notes.append(
            f"{cpu_only} jobs are of CPU-only models: their GPUs count as workers and as load, but take no GPU"
        )
    capped = Counter(request.gpus for job, request in zip(chosen, requests, strict=True) if job.gpus > request.gpus)
    notes += [f"{count} requests above {most} GPUs count as {most}" for most, count in sorted(capped.items())]
    return notes


def _range(options: WorkloadOptions, count: int) -> str:
    first = options.window * (options.limit_jobs or 0)
    return f"{first + 1}–{first + count}"


def stated_profile(job: RecordedJob, choice: JobKindChoice, seed: int) -> ModelProfile | None:
    """The model that the record names, if one of the kinds knows it; the job's drawn kind comes first."""
    if not job.model:
        return None
    drawn = _drawn_kind(job.job_id, choice, seed)
    for kind in (drawn, *(kind for kind in choice.kinds if kind is not drawn)):
        profile = find_model(job.model, kind)
        if profile is not None:
            return profile
    return None


def assigned_profile(job: RecordedJob, choice: JobKindChoice, seed: int) -> ModelProfile:
    """A model of the job's drawn kind; only models whose workers need a GPU."""
    names = model_names(_drawn_kind(job.job_id, choice, seed), on_gpus=True)
    return CATALOGUE[names[int.from_bytes(_digest(job.job_id, seed)[:8], "big") % len(names)]]


def _drawn_kind(job_id: str, choice: JobKindChoice, seed: int) -> JobKind:
    """By other bytes than the model, so that kind and model are independent."""
    kinds = choice.kinds
    return kinds[int.from_bytes(_digest(job_id, seed)[8:16], "big") % len(kinds)]


def _digest(job_id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{job_id}".encode()).digest()


TARGET_LOAD = 0.9
"""GPUs asked for over GPUs there are: busy enough that scheduling matters, and stable."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """Submission of a job, its duration, and its GPUs."""

    submit_seconds: float
    duration_seconds: float
    gpus: int


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Equal nodes."""

    nodes: int
    gpus_per_node: int
    cpus_per_node: int

    @property
    def node(self) -> Resources:
        """What one node has."""
        return Resources(self.cpus_per_node * 1000, self.gpus_per_node)

    def holds(self, profile: ModelProfile, allocation: Allocation) -> bool:
        """Whether the empty cluster can hold the job: workers spread evenly, then PSs in the CPU that is left."""
        evenly, rest = divmod(allocation.workers, self.nodes)
        servers = 0
        for workers, count in ((evenly + 1, rest), (evenly, self.nodes - rest)):
            taken = profile.worker_demand * workers
            if count and not taken.fits_in(self.node):
                return False
            if not profile.kind.uses_ps:
                continue
            servers += count * ((self.node - taken).cpu_milli // profile.ps_demand.cpu_milli)
        return allocation.ps <= servers


def clipped_gpu_load(requests: Sequence[GpuRequest]) -> float:
    """GPUs in use on average between the first and the last submission, every job starting when it is submitted.

    What would run on beyond the last submission is no load of this window. 0 if all jobs are submitted at once.
    """
    start = min(request.submit_seconds for request in requests)
    end = max(request.submit_seconds for request in requests)
    if end <= start:
        return 0.0
    gpu_seconds = (min(request.duration_seconds, end - request.submit_seconds) * request.gpus for request in requests)
    return math.fsum(gpu_seconds) / (end - start)


def nodes_for(requests: Sequence[GpuRequest], load: float, gpus_per_node: int, target_load: float = TARGET_LOAD) -> int:
    """Nodes that hold the largest request, and the load at 90% or what else is wanted."""
    largest = max(request.gpus for request in requests)
    return math.ceil(max(largest, load / target_load) / gpus_per_node)
