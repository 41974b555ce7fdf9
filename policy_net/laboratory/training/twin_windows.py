"""Windows of a cluster's own jobs that a twin learns from, and its last days, by which the twin is checked.

Windows come from the cluster's decision log, with the work that jobs really did and the speeds that the log shows, and
from recordings of whatever scheduled it before. A recording knows no speeds: each window of it draws its jobs' models
anew. What is only believed is drawn too: every type's speed gets a factor of its own in every window, the same for all
weights that are compared in it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import CapacityMode, PlacementEffect, Resources, SpeedModel, speed_at
from policy_net.errors import BadInput
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.metrics import summarise
from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload, WorkloadJob, WorkloadOptions, take_window
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy

FEWEST_JOBS = 20
"""A window of fewer says nothing that its chance does not drown."""
TOO_FEW = f"no {FEWEST_JOBS} jobs have ended here yet, and learning.twin.history names no recording"
"""Why a cluster that has just begun is taught nothing."""
_LOG = "the decision log"
_DEBOUNCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """How windows are made.

    Attributes:
        jobs: consecutive jobs of a window, at most.
        speed_spread: deviation of the log of a type's factor.
        speed_noise: see `Environment`; nobody reads speeds off exactly.
        job_kind, work_known: how the jobs of a recording train, and whether they say how much work they are.
    """

    jobs: int = 500
    speed_spread: float = 0.15
    speed_noise: float = 0.27
    job_kind: JobKindChoice = JobKindChoice.MIX
    work_known: bool = False


@dataclass(frozen=True, slots=True)
class TwinWindow:
    """Jobs, machines and speeds of one window, and what places do to speeds."""

    workload: Workload
    environment: Environment
    speeds: SpeedModel
    placement_effect: PlacementEffect | None = None


@dataclass(frozen=True, slots=True)
class TwinMachines:
    """What the cluster has, how often it decides, and what a job loses by a start or a resize."""

    nodes: tuple[Resources, ...]
    slot_seconds: float
    pause_seconds: float = 0.0
    capacity_mode: CapacityMode = CapacityMode.NODES


class DrawnSpeeds:
    """Speeds with a factor per type, drawn once: what is believed is wrong by as much. A `SpeedModel`."""

    def __init__(self, speeds: SpeedModel, spread: float, seed: int) -> None:
        self._speeds, self._spread, self._seed = speeds, spread, seed
        self._grids: dict[str, NDArray[np.float64]] = {}

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """See `SpeedModel`."""
        return speed_at(self.grid(job_type), ps, workers)

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """See `SpeedModel`."""
        found = self._grids.get(job_type)
        if found is None:
            # By the type's name, so that a type has its factor whichever jobs of it come first.
            of_type = int.from_bytes(hashlib.sha256(job_type.encode()).digest()[:8], "big")
            factor = math.exp(self._spread * np.random.default_rng((self._seed, of_type)).standard_normal())
            found = self._grids[job_type] = self._speeds.grid(job_type) * factor
        return found


class History:
    """Past of a cluster, from which windows are drawn; read once.

    Args:
        sources: workloads as `policy-net replay` takes them.
        log: of what the agent itself has scheduled, where there is something.
        machines: what the cluster has now; the jobs of a recording are replayed on them.

    Raises:
        BadInput: a source cannot be used or has too few jobs, or there is nothing at all.
    """

    def __init__(
        self, sources: Sequence[str], log: RecordedJobs | None, machines: TwinMachines, choice: WindowChoice
    ) -> None:
        largest = max(machines.nodes, key=lambda node: (node.gpu, node.cpu_milli), default=Resources(0, 0))
        if not largest.cpu_milli:
            raise BadInput("the cluster has no node with any capacity: nothing can be replayed on it")
        self._machines, self._choice, self._log = machines, choice, log
        self._options = WorkloadOptions(
            job_kind=choice.job_kind, gpus_per_node=largest.gpu, cpus_per_node=max(1, largest.cpu_milli // 1000)
        )
        self._jobs = {source: self._count(source) for source in sources}
        if log is not None and len(log.workload.jobs) >= FEWEST_JOBS:
            self._jobs[_LOG] = len(log.workload.jobs)
        if not self._jobs:
            raise BadInput(TOO_FEW)

    @property
    def jobs(self) -> int:
        """How many jobs there are in all."""
        return sum(self._jobs.values())

    def draw(self, generator: np.random.Generator) -> TwinWindow:
        """A window, each job being as likely to be in it as any other.

        Raises:
            BadInput: too few jobs of a window fit on the machines.
        """
        names = list(self._jobs)
        counts = np.array(list(self._jobs.values()), dtype=np.float64)
        source = names[int(generator.choice(len(names), p=counts / counts.sum()))]
        window = drawn_window(self._jobs[source], self._choice.jobs, generator)
        model_seed, noise_seed, speed_seed = (int(seed) for seed in generator.integers(2**31, size=3))
        if source == _LOG:
            assert self._log is not None  # noqa: S101  (narrows the type)
            jobs = take_window(self._log.workload.jobs, self._choice.jobs, window, self._log.workload.name)
            machines = replace(self._machines, nodes=self._log.usual_nodes)
            truth: SpeedModel = self._log.speeds
        else:
            options = replace(self._options, seed=model_seed, limit_jobs=self._choice.jobs, window=window)
            jobs = load_workload(source, options).jobs
            if not self._choice.work_known:
                jobs = tuple(replace(job, work_known=False) for job in jobs)
            machines, truth = self._machines, options.speeds
        speeds = DrawnSpeeds(truth, self._choice.speed_spread, speed_seed)
        return window_of(source, jobs, environment_of(machines, self._choice.speed_noise, noise_seed), speeds)

    def _count(self, source: str) -> int:
        jobs = len(load_workload(source, self._options).jobs)
        if jobs < FEWEST_JOBS:
            raise BadInput(f"{source}: has {jobs} jobs; {FEWEST_JOBS} are the least that can teach anything")
        return jobs


def part_of(window: TwinWindow, jobs: int, speed_spread: float, generator: np.random.Generator) -> TwinWindow:
    """A run of at most `jobs` (20 or more) jobs of a workload that can run, at speeds that are believed in part."""
    every = window.workload.jobs
    kept: Sequence[WorkloadJob] = every
    if len(every) > jobs:
        kept = take_window(every, jobs, drawn_window(len(every), jobs, generator), window.workload.name)
    start = kept[0].submit_time_seconds
    shifted = tuple(replace(job, submit_time_seconds=job.submit_time_seconds - start) for job in kept)
    speeds = DrawnSpeeds(window.speeds, speed_spread, int(generator.integers(2**31)))
    return replace(window, workload=replace(window.workload, jobs=shifted), speeds=speeds)


def environment_of(machines: TwinMachines, speed_noise: float = 0.0, seed: int = 0) -> Environment:
    """A cluster of these machines, deciding at events.

    Raises:
        BadInput: none has any capacity.
    """
    capacities = tuple(free_capacity for free_capacity in machines.nodes if free_capacity.cpu_milli > 0)
    if not capacities:
        raise BadInput("no node of the cluster had any capacity: nothing can be replayed on it")
    return Environment(
        nodes=len(capacities),
        node_sizes=capacities,
        slot_seconds=machines.slot_seconds,
        decide_on=DecideOn.EVENT,
        debounce_seconds=min(_DEBOUNCE_SECONDS, machines.slot_seconds),
        capacity_mode=machines.capacity_mode,
        resize_seconds=machines.pause_seconds,
        resume_seconds=machines.pause_seconds,
        start_seconds=machines.pause_seconds,
        speed_noise=speed_noise,
        seed=seed,
    )


def cost_of(
    window: TwinWindow,
    spec: SetSpec,
    priors: Sequence[SpeedStatistic],
    on_progress: Callable[[float], None] | None = None,
) -> Callable[[Weights], float]:
    """The mean JCT of a window in seconds, as a function of the weights; every call begins with the priors alone."""
    policy = SetPolicy(spec, np.zeros(spec.parameter_count, dtype=np.float32), priors)

    def cost(weights: Weights) -> float:
        policy.load_weights(weights)
        found = replay(
            window.workload,
            window.environment,
            policy,
            window.speeds,
            on_progress,
            placement_effect=window.placement_effect,
            keep_beliefs=False,
        )
        mean = summarise(found.outcomes).avg_jct_seconds
        assert mean is not None  # noqa: S101  (every job of a replay ends; narrows the type)
        return mean

    return cost


def window_of(name: str, jobs: Sequence[WorkloadJob], environment: Environment, speeds: SpeedModel) -> TwinWindow:
    """Those of the jobs that can run, from the first one's submission on.

    Raises:
        BadInput: too few of them fit on the machines.
    """
    able = [job for job in jobs if _can_run(job, environment, speeds)]
    if len(able) < FEWEST_JOBS:
        raise BadInput(f"{name}: only {len(able)} of {len(jobs)} jobs of a window fit on this cluster's machines")
    start = able[0].submit_time_seconds
    shifted = tuple(replace(job, submit_time_seconds=job.submit_time_seconds - start) for job in able)
    return TwinWindow(Workload(name, shifted, suggested_nodes=environment.nodes), environment, speeds)


def drawn_window(jobs: int, length: int, generator: np.random.Generator) -> int:
    """The number of a window, each job being as likely to be in it; a rest of too few jobs is left out."""
    lengths = [min(length, jobs - start) for start in range(0, jobs, length)]
    weights = np.array([size if size >= FEWEST_JOBS else 0 for size in lengths], dtype=np.float64)
    return int(generator.choice(len(lengths), p=weights / weights.sum()))


def _can_run(job: WorkloadJob, environment: Environment, speeds: SpeedModel) -> bool:
    try:
        check_jobs_can_run(Workload("one", (job,)), environment, {job.job_type: speeds.grid(job.job_type).tolist()})
    except BadInput:
        return False
    return True


FAR = 0.5
"""A twin whose mean JCT is off by this share or more is not believed at all."""
DAYS = 7.0
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LastDays:
    """Jobs that ended in the last days of a log, among those that are replayed with them.

    Attributes:
        window: all that is replayed: also jobs of as many days before, and those that go on, for which others waited.
        zero_seconds: of the window's time, in the log's own.
        begin_seconds, end_seconds: of those days, in the window's time.
        compared: ids of those that ended in them, and `really_seconds` their mean JCT.
    """

    window: TwinWindow
    zero_seconds: float
    begin_seconds: float
    end_seconds: float
    compared: frozenset[str]
    really_seconds: float

    def replayed(
        self,
        policy: SchedulerPolicy,
        on_progress: Callable[[float], None] | None = None,
        *,
        record_timeline: bool = False,
    ) -> ReplayResult:
        """All of the window under a policy."""
        window = self.window
        return replay(
            *(window.workload, window.environment, policy, window.speeds, on_progress), record_timeline=record_timeline
        )

    def mean_jct_seconds(self, result: ReplayResult) -> float:
        """Of the compared jobs, in a replay of the window; every job of a replay ends."""
        times = {one.job_id: one.jct_seconds for one in result.outcomes if one.jct_seconds is not None}
        return math.fsum(times[job_id] for job_id in self.compared) / len(self.compared)


def last_days_of(
    recorded: RecordedJobs, machines: TwinMachines, days: float = DAYS, most_jobs: int | None = None
) -> LastDays | None:
    """The last days of a log; None where too few jobs have ended in them.

    Args:
        most_jobs: that are replayed; of more, the newest, and the days begin with the middle one's submission.

    Raises:
        BadInput: too few of the jobs fit on the log's usual nodes.
    """
    end = recorded.end_seconds - recorded.start_seconds
    ends = {
        job.job_id: job.submit_time_seconds + recorded.jct_seconds[job.job_id]
        for job in recorded.workload.jobs
        if job.job_id in recorded.jct_seconds
    }
    since = end - 2.0 * days * _DAY_SECONDS
    jobs = [job for job in recorded.workload.jobs if ends.get(job.job_id, end) >= since]
    begin = end - days * _DAY_SECONDS
    if most_jobs is not None and len(jobs) > most_jobs:
        jobs = jobs[-most_jobs:]
        begin = max(begin, jobs[most_jobs // 2].submit_time_seconds)
    compared = {job.job_id for job in jobs if ends.get(job.job_id, -math.inf) >= begin}
    if len(compared) < FEWEST_JOBS:
        return None
    environment = environment_of(replace(machines, nodes=recorded.usual_nodes))
    window = window_of(recorded.workload.name, jobs, environment, recorded.speeds)
    able = {job.job_id for job in window.workload.jobs}
    compared &= able
    if len(compared) < FEWEST_JOBS:
        return None
    zero = next(job.submit_time_seconds for job in jobs if job.job_id in able)
    return LastDays(
        window=window,
        zero_seconds=recorded.start_seconds + zero,
        begin_seconds=max(begin - zero, 0.0),
        end_seconds=end - zero,
        compared=frozenset(compared),
        really_seconds=math.fsum(recorded.jct_seconds[job_id] for job_id in compared) / len(compared),
    )


def agreement_of(
    recorded: RecordedJobs,
    policy: SchedulerPolicy,
    machines: TwinMachines,
    days: float = DAYS,
    on_progress: Callable[[float], None] | None = None,
) -> float | None:
    """Agreement of the twin with the last days, under the policy that acted in them, from 0 to 1.

    1: its mean JCT is what really happened; 0: it is off by half or more; None: too few jobs have ended.

    Raises:
        BadInput: too few of the jobs fit on the log's usual nodes.
    """
    past = last_days_of(recorded, machines, days)
    if past is None:
        return None
    if past.really_seconds <= 0.0:
        return 0.0
    said = past.mean_jct_seconds(past.replayed(policy, on_progress))
    return max(0.0, 1.0 - abs(math.log(said / past.really_seconds)) / math.log(1.0 + FAR))
