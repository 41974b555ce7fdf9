"""Measurement of TrainingJobs, as their coordinators counted: for a policy to decide and learn by; pure.

What is measured of a job counts for the size that it ran with at both ends, while it trained and was not on its way to
another one. The rest of an interval it paused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_high
from types import MappingProxyType
from typing import Final

from cluster_agent.backends.kubernetes.observation import seconds_of
from cluster_agent.backends.kubernetes.places import GpuTypes, Places, places_of
from cluster_agent.backends.kubernetes.training.free_capacity import task_requests
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport
from cluster_agent.kubernetes.capacity import Amounts
from cluster_agent.kubernetes.resources import as_dict
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import JobUpdateMode, TrainingJob
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation, Job, JobKind, Progress, Resources

Demand = Callable[[Amounts], Resources]
"""What a task takes, as policies count it."""
GUESSED_SAMPLES_PER_EPOCH = 10_000.0
"""Until the first sample of a job, or of another one of its type, was counted."""
_LEAST_REMAINING_EPOCHS = 1e-3
_LEAST_PER_EPOCH, _MOST_PER_EPOCH = 1e-3, 1e15
_NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})
_FALSE_FROM = 1.01
"""An epoch has no whole number of batches: so much more than was said is no lie."""
_UNDER_WAY = frozenset({JobPhase.STARTING, JobPhase.RECOVERING, JobPhase.RESIZING, JobPhase.SUSPENDING})


@dataclass(slots=True)
class SizePeriod:
    """A size that a job ran with, from one poll to a later one; no workers where their nodes were not the same."""

    size: Allocation
    from_seconds: float
    from_samples: float
    to_seconds: float
    to_samples: float
    workers: Mapping[str, int] | None = None

    @property
    def seconds(self) -> float:
        """How long."""
        return self.to_seconds - self.from_seconds


@dataclass(slots=True)
class MeasuredJob:
    """One job's counters over an agent's life.

    Attributes:
        period: the newest period; None before the job was seen to train.
        samples: most that were counted, and `step` of global steps.
        liar: why its counters are not believed, in a line; empty where they are.
    """

    period: SizePeriod | None = None
    samples: float = 0.0
    step: int = 0
    epoch: float = 0.0
    total_epochs: float = 0.0
    run_seconds: float = 0.0
    liar: str = ""
    _was_steady: bool = field(default=False)
    _life: int = field(default=0)
    _workers: Mapping[str, int] = field(default_factory=dict)

    def poll(self, job_report: CoordinatorReport, workers: Mapping[str, int] = _NOWHERE) -> None:
        """Take what a coordinator said, unless it cannot be; `workers` are those on each node, where known."""
        self._workers = workers
        status = job_report.status
        self.liar = job_report.falsehood
        if self.liar:
            self.period, self._was_steady = None, False
            return
        size = Allocation(status.size.workers, status.size.servers)
        steady = status.phase is JobPhase.RUNNING and status.size == status.target
        if not size.ps and status.generation != self._life:
            # Other ranks than before: between the two the job paused, which nobody was there to say.
            self._was_steady, self._life = False, status.generation
        period = self.period
        goes_on = period is not None and period.size == size and status.samples >= period.to_samples
        if steady and self._was_steady and goes_on and period is not None:
            if job_report.at_seconds > period.to_seconds:
                self.run_seconds += job_report.at_seconds - period.to_seconds
                period.to_seconds, period.to_samples = job_report.at_seconds, float(status.samples)
            if period.workers != workers:
                period.workers = None
        elif steady:
            now, samples = job_report.at_seconds, float(status.samples)
            self.period = SizePeriod(size, now, samples, now, samples, workers)
        self._was_steady = steady
        self.samples, self.step = max(self.samples, float(status.samples)), max(self.step, status.step)
        self.epoch, self.total_epochs = max(self.epoch, status.epoch), status.total_epochs

    @property
    def samples_per_epoch(self) -> float:
        """0 until it is known."""
        found = self.samples / self.epoch if self.samples > 0 and self.epoch > 0 else 0.0
        return found if _LEAST_PER_EPOCH <= found <= _MOST_PER_EPOCH else 0.0

    @property
    def steps_per_epoch(self) -> float:
        """Likewise."""
        found = self.step / self.epoch if self.step > 0 and self.epoch > 0 else 0.0
        return found if _LEAST_PER_EPOCH <= found <= _MOST_PER_EPOCH else 0.0

    def begin_interval(self) -> None:
        """What is measured from now on is the next interval's."""
        if self.period is not None:
            period = self.period
            seconds, samples = period.to_seconds, period.to_samples
            self.period = SizePeriod(period.size, seconds, samples, seconds, samples, self._workers)

    def places(self, before: GpuTypes, now: GpuTypes) -> Places:
        """Where the workers of the period were all the time; nothing where that is not known, or changed."""
        period = self.period
        if period is None or period.workers is None or period.seconds <= 0.0:
            return ()
        found = places_of(period.workers, period.size.workers, before)
        return found if found == places_of(period.workers, period.size.workers, now) else ()


def current_of(job: TrainingJob, job_report: CoordinatorReport | None) -> Allocation:
    """What a job has, or is about to have: a change that is under way goes on by itself."""
    if job_report is None or job_report.falsehood:
        return job.granted if job.has_started and not job.suspend else SUSPENDED
    size = job_report.status.target if job_report.status.phase in _UNDER_WAY else job_report.status.size
    whole = size.workers and (size.servers or job.is_all_reduce)
    return Allocation(size.workers, size.servers) if whole else SUSPENDED


@dataclass(frozen=True, slots=True)
class Usual:
    """An epoch of a type's jobs, until one of its own has said it: its samples and steps; 0 where nobody has."""

    samples: float = 0.0
    steps: float = 0.0


def usual_of(jobs: Iterable[tuple[str, MeasuredJob]]) -> dict[str, Usual]:
    """By type: the medians of its jobs."""
    known: dict[str, list[MeasuredJob]] = {}
    for model_type, measured in jobs:
        if measured.samples_per_epoch and measured.steps_per_epoch and not measured.liar:
            known.setdefault(model_type, []).append(measured)
    return {
        model_type: Usual(
            median_high(each.samples_per_epoch for each in found), median_high(each.steps_per_epoch for each in found)
        )
        for model_type, found in known.items()
    }


_UNKNOWN: Final = Usual()


def _declared_epochs(job: TrainingJob, measured: MeasuredJob, usual: Usual) -> float | None:
    """How many epochs the whole job has: as its script says once it trains, else as its author did; None: nobody did.

    Steps become epochs once it is known how many make one, from the job itself or from others of its type.
    """
    if measured.total_epochs or job.epochs:
        return measured.total_epochs or job.epochs
    per_epoch = measured.steps_per_epoch or usual.steps
    return job.steps / per_epoch if job.steps is not None and per_epoch else None


def scheduled_job(
    job: TrainingJob,
    measured: MeasuredJob,
    current: Allocation,
    demands: tuple[Resources, Resources],
    submitted_unix_seconds: float,
    usual: Usual = _UNKNOWN,
) -> Job:
    """What a policy may know of a job; `demands` are of a worker and of a parameter server, `usual` of its type."""
    per_epoch = measured.samples_per_epoch or usual.samples or GUESSED_SAMPLES_PER_EPOCH
    done = measured.samples / per_epoch
    declared = _declared_epochs(job, measured, usual)
    if declared is not None and done > _FALSE_FROM * declared:
        declared = None  # what was wrong once is not relied on
    total = max(2 * done, 1.0) if declared is None else declared
    least, most = job.least, job.most
    if job.suspend:
        least, most = job.least, SUSPENDED
    elif (job.mode is JobUpdateMode.FROZEN or job.problem or not job.is_resizable) and current != SUSPENDED:
        least = most = current
    return Job(
        job_id=job.job_id,
        job_type=job.model_type,
        submit_time_seconds=submitted_unix_seconds,
        worker_demand=demands[0],
        ps_demand=demands[1],
        samples_per_epoch=per_epoch,
        total_epochs=total,
        remaining_epochs=max(total - done, _LEAST_REMAINING_EPOCHS),
        requested=SUSPENDED if job.suspend else least,
        max_workers=most.workers,
        max_ps=most.ps,
        run_seconds=measured.run_seconds,
        current=current,
        kind=JobKind.ALLREDUCE if job.is_all_reduce else JobKind.PS,
        min_workers=least.workers,
        min_ps=least.ps,
        work_known=declared is not None,
    )


def unended(jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """Those that are still to be looked after, the oldest first."""
    found = [job for job in jobs if not job.outcome and not job.deleting]
    return sorted(found, key=lambda job: (job.created, job.job_id))


def scheduled_jobs(
    jobs: Iterable[TrainingJob],
    demand: Demand,
    measured: Callable[[TrainingJob], MeasuredJob],
    job_report: Callable[[str], CoordinatorReport | None],
    problem: Callable[[TrainingJob], str],
    usual: Mapping[str, Usual],
) -> dict[str, tuple[TrainingJob, Job]]:
    """By id: the jobs that a decision is about, each with what a policy may know of it.

    Args:
        jobs: that have not ended.
        job_report: what the coordinator of a job said, by its uid.
        problem: what else stands against a job than its own `problem`; empty where nothing does.
        usual: an epoch of each type.
    """
    found = {}
    for job in jobs:
        counted, current = measured(job), current_of(job, job_report(job.uid))
        if (job.suspend or job.problem or problem(job)) and current == SUSPENDED:
            continue
        # Whoever has a PS has a coordinator too: where there is capacity for the one, there is for the other.
        leader = {
            name: job.ps.requests.get(name, 0) + amount for name, amount in task_requests(job, COORDINATOR).items()
        }
        servers = Resources(0) if job.is_all_reduce else demand({**job.ps.requests, **leader})
        demands, known = (demand(job.worker.requests), servers), usual.get(job.model_type, Usual())
        found[job.job_id] = (job, scheduled_job(job, counted, current, demands, seconds_of(job.created), known))
    return found


def noted(job: TrainingJob) -> MeasuredJob:
    """What is known of a job from its status alone, where its coordinator cannot be asked."""
    stated = as_dict(job.status.get("progress"))
    number = {name: _number(stated.get(name)) for name in ("samples", "step", "epoch", "totalEpochs")}
    return MeasuredJob(
        samples=number["samples"],
        step=int(number["step"]),
        epoch=number["epoch"],
        total_epochs=number["totalEpochs"],
    )


def _number(stated: object) -> float:
    """A number of a status, which somebody else may have written; 0 where it is none."""
    try:
        value = float(stated) if isinstance(stated, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return value if 0.0 <= value <= _MOST_PER_EPOCH else 0.0


def progress_of(job: Job, measured: MeasuredJob, current: Allocation, whole_seconds: float, finished: bool) -> Progress:
    """What a job did in an interval of so many seconds, as it was observed at its beginning."""
    period = measured.period
    if period is None or period.seconds <= 0.0:
        paused = whole_seconds if current != SUSPENDED else 0.0
        return Progress(job.job_id, job.job_type, current, 0.0, 0.0, 0.0, job.remaining_epochs, finished, paused)
    samples = period.to_samples - period.from_samples
    return Progress(
        job.job_id,
        job.job_type,
        period.size,
        period.seconds,
        samples,
        samples / job.samples_per_epoch,
        job.remaining_epochs,
        finished,
        max(0.0, whole_seconds - period.seconds),
    )
