"""Workload of a replay: jobs with their true amount of work, in order of submission, and what users declare of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, JobKind, Resources, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import ModelProfile
from policy_net.laboratory.noise import job_key, normal, uniform

Item = TypeVar("Item")


class JobKindChoice(StrEnum):
    """How the jobs of a recorded workload train."""

    PS = "ps"
    ASYNC = "async"
    ALLREDUCE = "allreduce"
    MIX = "mix"

    @property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds that occur, in equal shares: `mix` is of synchronous PS and all-reduce jobs."""
        return (JobKind.PS, JobKind.ALLREDUCE) if self is JobKindChoice.MIX else (JobKind(self.value),)


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """One job of a workload, as it really is.

    Attributes:
        total_epochs: the true amount of work, which decides when the job is done; schedulers do not see it.
        declared_epochs: what schedulers are told instead; None if the user declared the truth.
        requested: the size the user asked for; fixed-size schedulers give exactly this.
        work_known: whether schedulers are told any total at all.
        true_type: whose speeds it has; None if `job_type` is the truth.
        report_factor: samples that it reports for every sample that it trains.
    """

    job_id: str
    job_type: str
    submit_time_seconds: float
    total_epochs: float
    samples_per_epoch: float
    worker_demand: Resources
    ps_demand: Resources
    requested: Allocation
    max_workers: int = MAX_TASKS_PER_ROLE
    max_ps: int = MAX_TASKS_PER_ROLE
    declared_epochs: float | None = None
    kind: JobKind = JobKind.PS
    min_workers: int = 1
    min_ps: int = 1
    work_known: bool = True
    true_type: str | None = None
    report_factor: float = 1.0

    def __post_init__(self) -> None:
        amounts = {"total_epochs": self.total_epochs, "samples_per_epoch": self.samples_per_epoch}
        amounts["report_factor"] = self.report_factor
        if self.declared_epochs is not None:
            amounts["declared_epochs"] = self.declared_epochs
        for name, value in amounts.items():
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"job {self.job_id}: {name} is {value}: use a finite number above 0")
        if not (math.isfinite(self.submit_time_seconds) and self.submit_time_seconds >= 0):
            raise BadInput(
                f"job {self.job_id}: submit_time_seconds is {self.submit_time_seconds}: use a finite number from 0 on"
            )
        self._check_caps()
        for role, demand in (("worker", self.worker_demand), ("ps", self.ps_demand)):
            if demand.cpu_milli < 0 or demand.gpu < 0:
                raise BadInput(f"job {self.job_id}: {role} demand {demand} is negative")

    def _check_caps(self) -> None:
        caps = [("workers", self.min_workers, self.max_workers)]
        if self.kind.uses_ps:
            caps.append(("ps", self.min_ps, self.max_ps))
        elif self.min_ps or self.max_ps or self.requested.ps:
            raise BadInput(
                f"job {self.job_id}: an all-reduce job has no parameter servers, but min_ps is {self.min_ps}, max_ps"
                f" {self.max_ps} and {self.requested.ps} are requested: use 0"
            )
        for role, least, most in caps:
            bound = self.kind.most_workers if role == "workers" else self.kind.most_ps
            if not 1 <= most <= bound:
                raise BadInput(f"job {self.job_id}: max_{role} is {most}: use 1 to {bound}")
            if not 1 <= least <= most:
                raise BadInput(f"job {self.job_id}: min_{role} is {least}: use 1 to {most}, the job's max_{role}")

    @property
    def fixed_size(self) -> bool:
        """Whether it has one size only, or nothing."""
        return (self.min_workers, self.min_ps) == (self.max_workers, self.max_ps)

    @property
    def trains_as(self) -> str:
        """The type whose speeds it has."""
        return self.job_type if self.true_type is None else self.true_type

    @property
    def shown_epochs(self) -> float:
        """The total that schedulers are told."""
        return self.total_epochs if self.declared_epochs is None else self.declared_epochs


def job_of(
    profile: ModelProfile, job_id: str, submit_time_seconds: float, total_epochs: float, requested: Allocation
) -> WorkloadJob:
    """A job that trains a model of the catalogue, with the caps that are usual for what it asks for."""
    return WorkloadJob(
        job_id=job_id,
        job_type=profile.name,
        submit_time_seconds=submit_time_seconds,
        total_epochs=total_epochs,
        samples_per_epoch=profile.samples_per_epoch,
        worker_demand=profile.worker_demand,
        ps_demand=profile.ps_demand,
        requested=requested,
        max_workers=profile.kind.usual_max_workers(requested.workers),
        max_ps=profile.kind.most_ps,
        kind=profile.kind,
        min_ps=int(profile.kind.uses_ps),
    )


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a recording says of one job beyond what a simulation needs; None or empty where it does not say it.

    Attributes:
        gpus: how many it asked for, before any bound of ours.
        wait_seconds: from submission to its first start; `jct_seconds` to its end.
    """

    gpus: int
    wait_seconds: float | None = None
    jct_seconds: float | None = None
    user: str = ""
    account: str = ""
    partition: str = ""


USUAL_GPUS_PER_NODE, USUAL_CPUS_PER_NODE = 2, 8
"""Of a machine on which generated and published jobs run, unless the user says otherwise: DL2's."""


class FigureOrigin(StrEnum):
    """Where a figure comes from: the user, the recorded log, or nobody, so that it was assumed."""

    GIVEN = "given"
    LOG = "log"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of a workload's cluster, all alike, and who says so; `nodes` is None where the load suggests it."""

    nodes: int | None
    gpus_per_node: int
    cpus_per_node: int
    nodes_by: FigureOrigin = FigureOrigin.ASSUMED
    gpus_by: FigureOrigin = FigureOrigin.ASSUMED
    cpus_by: FigureOrigin = FigureOrigin.ASSUMED


@dataclass(frozen=True, slots=True)
class Skipped:
    """Malformed part of a file, which could not be used.

    Attributes:
        count: of how many lines, or whatever `unit` the file consists of.
        share: of all that the file has.
        example: the first of those that are skipped for the reason most of them are, which `alike` are.
    """

    count: int
    share: float
    unit: str
    example: str
    alike: int


@dataclass(frozen=True)
class Workload:
    """The jobs of one replay.

    Attributes:
        jobs: at least one, by submit time; jobs of the same time keep this order.
        notes: assumptions made when it was read or generated, to be printed with every result.
        slotted: whether decisions are taken by slot (else by event) unless the user says otherwise.
        machines: of a recorded workload: what its jobs' requests were made for; None where nothing depends on it.
        records: what was recorded of a job, by its id.
    """

    name: str
    jobs: tuple[WorkloadJob, ...]
    notes: tuple[str, ...] = ()
    suggested_nodes: int | None = None
    slotted: bool = False
    machines: Machines | None = None
    records: Mapping[str, JobRecord] = field(default_factory=lambda: MappingProxyType({}))
    skipped: Skipped | None = None

    def __post_init__(self) -> None:
        if not self.jobs:
            raise BadInput(f"workload {self.name!r} has no jobs")
        seen: set[str] = set()
        previous = self.jobs[0]
        for job in self.jobs:
            if job.job_id in seen:
                raise BadInput(f"workload {self.name!r}: job id {job.job_id!r} occurs twice")
            seen.add(job.job_id)
            if job.submit_time_seconds < previous.submit_time_seconds:
                raise BadInput(
                    f"workload {self.name!r}: job {job.job_id!r} is submitted before job {previous.job_id!r},"
                    " which stands above it: sort the jobs by submit time"
                )
            previous = job


def take_window(jobs: Sequence[Item], length: int | None, window: int, origin: str) -> Sequence[Item]:
    """The `window`-th run (from 0) of `length` jobs; the last run may be shorter; all jobs if `length` is None.

    Raises:
        BadInput: there are not so many windows; `origin` says of what.
    """
    if length is None:
        return jobs
    chosen = jobs[window * length : (window + 1) * length]
    if not chosen:
        count = -(-len(jobs) // length)
        raise BadInput(f"{origin}: window {window} of {length} jobs is beyond its {len(jobs)} jobs; use 0–{count - 1}")
    return chosen


def _usual_speeds() -> SpeedModel:
    from policy_net.laboratory.speeds.speed import default_speeds  # noqa: PLC0415  (NumPy: help waits for no numbers)

    return default_speeds()


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """How a workload is read; the defaults are those of `policy-net replay`.

    Attributes:
        seed: assigns models to the jobs of a real trace; also the generator's, unless its text names one.
        limit_jobs, window: which run of how many consecutive jobs to take; None for all.
        job_kind: how the jobs of a real trace train; most of today's exchange gradients by all-reduce.
        nodes, machine_options: the user's; only the answer's words depend on them.
        gpus_per_node, cpus_per_node: of one node; a suggested size depends on them. None: what a recording shows, else
            2 GPUs, and 4 CPU cores for each, at least 8.
        arrival_scale: every time between two arrivals is multiplied by this: 2 halves the arrival rate. The suggested
            size of the cluster is that of the unscaled workload, so that the load really changes.
        strict: whether a malformed row of a recorded workload is refused; else it is skipped and counted.
        speeds: the truth with which durations of a real trace are turned into work.
    """

    seed: int = 0
    limit_jobs: int | None = None
    window: int = 0
    job_kind: JobKindChoice = JobKindChoice.ALLREDUCE
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    machine_options: str = "--nodes, --gpus-per-node and --cpus-per-node"
    arrival_scale: float = 1.0
    strict: bool = False
    speeds: SpeedModel = field(default_factory=_usual_speeds)

    def __post_init__(self) -> None:
        if self.limit_jobs is not None and self.limit_jobs < 1:
            raise BadInput(f"limit-jobs is {self.limit_jobs}; use 1 or more")
        if self.window < 0:
            raise BadInput(f"window is {self.window}; the first one is 0")
        if self.window > 0 and self.limit_jobs is None:
            raise BadInput(f"window is {self.window}, but its length is not known; add limit-jobs")
        if self.seed < 0:
            raise BadInput(f"seed is {self.seed}; use 0 or more")
        if self.job_kind not in tuple(JobKindChoice):
            raise BadInput(f"job-kind is {self.job_kind!r}; use {', '.join(JobKindChoice)}")
        object.__setattr__(self, "job_kind", JobKindChoice(self.job_kind))  # a library user may give its text
        if not (math.isfinite(self.arrival_scale) and self.arrival_scale > 0):
            raise BadInput(f"arrival-scale is {self.arrival_scale}; use a finite number above 0")


LARGEST_SIGMA = 5.0
"""Beyond it one declaration in twenty is off by more than 10,000 times: a slip of the pen."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """How far declarations lie from the truth; the default is that users know it.

    Every error is a hash of (seed, job), so that a job's declaration does not depend on the other jobs.
    Source: DL2 §6.6 (estimated epochs off by up to 20%). Deviation: lognormal errors and unknown durations are ours.

    Attributes:
        epoch_error: declared epochs are the true ones times a uniform number from 1 − this to 1 + this.
        duration_sigma: standard deviation of the logarithm of a lognormal factor with median 1.
        known: whether anything is declared at all.

    Raises:
        BadInput: a value is out of its range, or two errors are asked for.
    """

    epoch_error: float = 0.0
    duration_sigma: float = 0.0
    known: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.epoch_error < 1.0:  # false for NaN too
            raise BadInput(f"epoch-error is {self.epoch_error}: use a number from 0 to below 1")
        if not 0.0 <= self.duration_sigma <= LARGEST_SIGMA:
            raise BadInput(f"durations: sigma is {self.duration_sigma}: use a number from 0 to {LARGEST_SIGMA:g}")
        if self.epoch_error and (self.duration_sigma or not self.known):
            raise BadInput("epoch-error is given beside durations that are not known: use one of them")


def parse_durations(text: str, epoch_error: float = 0.0) -> Estimates:
    """The estimates that `known`, `lognormal:SIGMA` or `unknown` stands for.

    Raises:
        BadInput: it is none of them, or its number is out of range.
    """
    kind, colon, number = text.partition(":")
    if not colon and kind in ("known", "unknown"):
        return Estimates(epoch_error, known=kind == "known")
    try:
        sigma = float(number) if kind == "lognormal" else math.nan
    except ValueError:
        sigma = math.nan
    if math.isnan(sigma):
        raise BadInput(f"durations is {text!r}: use known, lognormal:SIGMA (such as lognormal:1) or unknown")
    return Estimates(epoch_error, duration_sigma=sigma)


def with_estimates(workload: Workload, estimates: Estimates, seed: int) -> Workload:
    """The workload as users who err like this declare it; with a note that says so."""
    if estimates == Estimates():
        return workload
    if not estimates.known:
        jobs = tuple(replace(job, declared_epochs=None, work_known=False) for job in workload.jobs)
        note = "the jobs' work is unknown: schedulers are shown as much again as a job has trained"
    else:
        jobs = tuple(
            replace(job, declared_epochs=job.total_epochs * _error(job, estimates, seed)) for job in workload.jobs
        )
        error = (
            f"± {estimates.epoch_error:.0%}, uniform"
            if estimates.epoch_error
            else f"× a lognormal error with σ = {estimates.duration_sigma:g}"
        )
        note = f"declared work is the true one {error}"
    return replace(workload, jobs=jobs, notes=(*workload.notes, note))


def _error(job: WorkloadJob, estimates: Estimates, seed: int) -> float:
    key = job_key(seed, f"estimate {job.job_id}")
    if estimates.epoch_error:
        return 1.0 + estimates.epoch_error * (2.0 * uniform(key, 0) - 1.0)
    return math.exp(estimates.duration_sigma * normal(key, 0))
